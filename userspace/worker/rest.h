// SPDX-License-Identifier: Apache-2.0
// How a rank rests that has nothing to do: it asks to be woken, or looks again by itself a moment later.
// Why: a wake-up costs the sender's softirq an interrupt, and where results come by dozens, a look after a moment finds the next dozens together.
// What network cards call interrupt moderation, and NAPI polling.
#pragma once

#include <cstdint>

namespace mlnet::worker {

class Rest {
 public:
  /// A nap: Linux adds the thread's timer slack, 50 us unless set (prctl(2), PR_SET_TIMERSLACK).
  static constexpr uint64_t kNapNs = 20'000;
  static constexpr uint64_t kBurstResults = 32;

  /// True where it should nap, false where it should ask to be woken. `results`: how many have come so far. One nap finds as many as
  /// before it, or the next rest is asleep.
  bool ShouldNap(uint64_t results) {
    const bool has_burst = results - rested_at_ >= kBurstResults;
    rested_at_ = results;
    return has_burst;
  }

 private:
  uint64_t rested_at_ = 0;
};

}  // namespace mlnet::worker
