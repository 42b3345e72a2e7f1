// SPDX-License-Identifier: Apache-2.0
// What one turn of one backend measures: written by mlnet-lab perf, read by every rank program.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mlnet-perf/usage.h"
#include "mlnet/communicator.h"

namespace mlnet::perf {

using Json = nlohmann::json;

struct Spec {
  std::string dir;  // of this turn: spec.json, shared, rank-R.json
  int world_size = 1;
  int ranks_per_host = 1;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  WireType wire = WireType::kInt32;  // mlnet's
  bool keeps_small = true;           // mlnet's: the bound of the element, else of the block
  uint64_t small_bytes = 0;          // mlnet's: sums of floats up to this over all ranks are made by the ranks
  bool travels_as_half = false;      // a peer's: float32 is converted to float16, reduced, and converted back
  std::vector<uint64_t> counts;      // elements, one row each
  int iterations = 1;
  int warmup = 1;
  std::string algorithm;   // Gloo's; empty: the fastest in a trial
  bool check_all = false;  // every iteration; else one a row
  uint64_t seed = 1;
  int timeout_s = 60;  // of one collective
  std::string job;     // mlnet's rendezvous name
  std::string iface = "eth0";

  std::string File() const { return dir + "/spec.json"; }
  std::string SharedFile() const { return dir + "/shared"; }
  std::string ResultFile(int rank) const { return dir + "/rank-" + std::to_string(rank) + ".json"; }
};

/// How a rank of mlnet joins.
JoinOptions JoinOptionsOf(const Spec& spec, int rank);

Result<void> SaveSpec(const Spec& spec);
Result<Spec> LoadSpec(const std::string& file);

/// What one rank found for one count.
struct RankRow {
  uint64_t count = 0;
  std::string variant;             // the algorithm that was chosen, empty where there is only one
  std::vector<uint64_t> times_ns;  // one per timed iteration
  uint64_t wrong = 0;              // out of bound in this rank's share, or different from rank 0
  uint64_t checked = 0;            // elements that were compared
  uint64_t summed_in_kernel = 0;
  uint64_t summed_in_user_space = 0;
  uint64_t retransmits = 0;
  CpuTime cpu{};             // of the timed collectives
  uint64_t memory_bytes = 0;  // resident at most up to their end, without the measurement's two tensors
};

/// Either rows or the error of a rank that gave up.
Result<void> SaveRows(const std::string& file, const Result<std::vector<RankRow>>& rows);
Result<std::vector<RankRow>> LoadRows(const std::string& file);

}  // namespace mlnet::perf
