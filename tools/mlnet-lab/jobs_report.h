// SPDX-License-Identifier: Apache-2.0
// What many jobs at once came to: when each was done, and how evenly they went while all were under way.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "state.h"

namespace mlnet::lab {

/// How far rank 0 of a job was: nanoseconds, bytes; ascending.
using Samples = std::vector<std::pair<uint64_t, uint64_t>>;

struct JobOutcome {
  std::string name;
  uint32_t weight = 1;
  double seconds = 0;  // from the common start to the end of its slowest rank
  uint64_t wrong = 0;
  uint64_t checked = 0;
  uint64_t summed_in_kernel = 0;
  uint64_t retransmits = 0;
  Samples samples;
};

/// All jobs under one order.
struct JobsOutcome {
  std::string order;
  std::vector<JobOutcome> jobs;
  double cpu_share = 0;  // of all processors, while they ran

  double Mean() const;
  double Last() const;
  uint64_t Wrong() const;
  /// Bytes of each job by its weight, from the start until the first one was done.
  std::vector<double> EvenBytes() const;
};

/// Jain's index: 1 when all are equal, 1/n when one has everything.
double JainIndex(const std::vector<double>& values);
/// The largest distance from the mean, as a part of the mean.
double MaxDeviation(const std::vector<double>& values);

Json OutcomeToJson(const JobsOutcome& outcome);
std::string RenderOutcomes(const std::vector<JobsOutcome>& outcomes);

}  // namespace mlnet::lab
