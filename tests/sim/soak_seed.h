// SPDX-License-Identifier: Apache-2.0
// A random job with random calls on a random network, and what it came to.
#pragma once

#include <array>
#include <cstdint>

#include "mlnet/verdict.h"
#include "sim/network.h"

namespace mlnet::sim {

/// Plain numbers: they go from process to process as they are.
struct Figures {
  uint64_t seeds = 0, events = 0, calls = 0, elements = 0, sums_compared = 0;
  uint64_t wrong = 0;  // results and sums on the wire
  uint64_t retransmits = 0, early_resends = 0, held = 0, busy = 0;
  uint64_t stale = 0;  // frames of an older epoch
  std::array<uint64_t, MLNET_V_COUNT> verdicts{};
  Traffic faults;
  double cpu_seconds = 0;
  bool has_failed = false;

  Figures& operator+=(const Figures& other);
};

/// Fails the current test when anything is not as it should be.
Figures RunSeed(uint64_t seed);

}  // namespace mlnet::sim
