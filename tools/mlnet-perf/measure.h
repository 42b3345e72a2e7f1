// SPDX-License-Identifier: Apache-2.0
// The measurement itself, the same for every backend: warm up, pick the fastest algorithm, time, check.
// A time is one rank's; a collective takes as long as its slowest rank, which mlnet-lab perf works out.
#pragma once

#include <string>
#include <vector>

#include "mlnet-perf/checker.h"
#include "mlnet-perf/spec.h"

namespace mlnet::perf {

struct Counters {
  uint64_t summed_in_kernel = 0;
  uint64_t summed_in_user_space = 0;
  uint64_t retransmits = 0;
};

/// One rank's access to one communication library.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Promise promise() const = 0;
  virtual size_t block_bytes() const { return 128; }
  /// Algorithms to choose from for every count; "" where the library chooses itself.
  virtual std::vector<std::string> Variants() const { return {""}; }
  /// Called on all ranks before the first AllReduce of a row.
  virtual Result<void> Prepare(void* buffer, size_t count, DataType dtype) = 0;
  /// In place on the prepared buffer.
  virtual Result<void> AllReduce(size_t variant) = 0;
  virtual Counters ReadCounters() = 0;
};

Result<std::vector<RankRow>> Measure(const Spec& spec, int rank, Backend& backend);

/// Leaves a rank's rows in its file, or its error, which is shown on stderr, too. The exit code.
int LeaveRows(const Spec& spec, int rank, const Result<std::vector<RankRow>>& rows);

/// The main function of `PROGRAM SPEC RANK`, which `starter` starts: leaves what `run` returns.
int RankMain(int argc, char** argv, const char* starter, Result<std::vector<RankRow>> (*run)(const Spec& spec, int rank));

/// TCP segments sent again in this network namespace, for the first rank of a host; else 0.
uint64_t TcpRetransmits(const Spec& spec, int rank);

}  // namespace mlnet::perf
