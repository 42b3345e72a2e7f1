// SPDX-License-Identifier: Apache-2.0
// What the iterations of `mlnet-lab layers` came to, against the best that any schedule could reach.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "mlnet-perf/layers_plan.h"
#include "mlnet-perf/spec.h"
#include "state.h"

namespace mlnet::lab {

/// One policy in all rounds.
struct PolicyOutcome {
  std::string policy;
  schedule::Policy settings;
  std::vector<double> iterations_s;   // from the first rank's start to the last one's end
  std::vector<double> first_waits_s;  // of the first layer's forward, on the rank that waited longest
  std::array<uint64_t, 8> calls{};    // collectives of each class, of one rank
  uint64_t wrong = 0;
  uint64_t checked = 0;
  uint64_t summed_in_kernel = 0;
  uint64_t retransmits = 0;
  uint64_t cpu_busy = 0, cpu_total = 0;  // of the machine, in ticks
};

/// Median, least and most; REQUIRES: not empty.
struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread SpreadOf(std::vector<double> values);

struct LayersOutcome {
  perf::Trace trace;  // as it was played
  double scale = 1;
  int ranks = 0;
  std::vector<double> rates;  // payload bytes per second, one for each sum of the whole model at once
  std::vector<PolicyOutcome> policies;

  uint64_t BytesPerS() const { return static_cast<uint64_t>(SpreadOf(rates).median); }
  /// The least that any schedule reaches at that rate.
  double BoundS() const;
  uint64_t Wrong() const;
};

/// Adds one turn's rows; rows of all ranks, of which the slowest counts. `rates` may be null.
void MergeTurn(const std::vector<std::vector<perf::RankRow>>& ranks, uint64_t bytes, PolicyOutcome& outcome, std::vector<double>* rates);

Json OutcomeToJson(const LayersOutcome& outcome);
std::string RenderOutcome(const LayersOutcome& outcome);

}  // namespace mlnet::lab
