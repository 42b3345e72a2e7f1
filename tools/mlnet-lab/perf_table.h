// SPDX-License-Identifier: Apache-2.0
// What mlnet-lab perf found, as a table in the shape of nccl-tests and as mlnet-lab.perf/1.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "mlnet-perf/spec.h"
#include "perf_traffic.h"

namespace mlnet::lab {

struct PerfRow {
  std::string backend;
  std::string wire;     // empty for peers, which send the elements as they are
  std::string bound;    // "element", "block"; empty where results are exact, or a peer's
  std::string variant;  // the algorithms that a peer found fastest, in any round
  std::string shape;    // of mlnet's trees; empty: as the daemon chose
  std::string placement = "racks";
  int ranks = 0;
  uint64_t count = 0;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<uint64_t> times_ns;  // of whole collectives: the slowest rank's
  uint64_t wrong = 0;
  uint64_t checked = 0;
  uint64_t retransmits = 0;
  uint64_t summed_in_kernel = 0;
  uint64_t summed_in_user_space = 0;
  bool has_kernel_counters = false;  // mlnet only
  bool has_racks = false;
  Spent spent;
  std::vector<double> round_us;  // the median of each round
  perf::CpuTime cpu;             // of the timed collectives, over all ranks
  uint64_t memory_bytes = 0;     // the most of any rank, without its tensors
  uint64_t link_bps = 0;         // of the slowest worker; 0: no limit, or several ranks share it

  uint64_t Bytes() const;
  double AlgorithmMBps() const;
  /// Algorithm bandwidth times 2(n-1)/n: what each link of a ring would have to carry.
  double BusMBps() const;
  /// What racks sent into the core, per collective.
  uint64_t CoreBytes() const;
  /// Elements as they travel that each rank must send and receive, no header among them: the tensor once; with a peer's
  /// ring 2(n-1)/n of it.
  double PayloadBytes() const;
  /// Those over what the link can carry in the median time; nullopt without a limit.
  std::optional<double> LinkPercent() const;
  /// Processor seconds for 10^9 bytes of the tensor, summed over the ranks.
  double SecondsPerGB(uint64_t ns) const;
};

/// Nearest rank of the sorted times, in microseconds; 0 for none.
double PercentileUs(std::vector<uint64_t> times_ns, double percent);

/// The rows of all ranks of one turn into one row per count, or added to those of earlier turns.
/// REQUIRES: all ranks report the same counts in the same order, as `rows` does unless it is empty.
void MergeTurn(const std::vector<std::vector<perf::RankRow>>& ranks, const PerfRow& shape,
               std::vector<PerfRow>& rows);

std::string RenderTable(const std::vector<PerfRow>& rows);
/// One line per peer, count and wire type of the first backend: how much faster that was. Empty without
/// peers.
std::string RenderComparison(const std::vector<PerfRow>& rows);
Json RowsToJson(const std::vector<PerfRow>& rows);
uint64_t WrongOf(const std::vector<PerfRow>& rows);

}  // namespace mlnet::lab
