// SPDX-License-Identifier: Apache-2.0
// Time enters the engine and the control loop through this seam only, so that tests own it.
#pragma once

#include <time.h>

#include <cstdint>

namespace mlnet {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Nanoseconds on a monotonic clock.
  virtual uint64_t NowNs() = 0;
};

class MonotonicClock final : public Clock {
 public:
  uint64_t NowNs() override {
    timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000ULL + static_cast<uint64_t>(ts.tv_nsec);
  }
};

}  // namespace mlnet
