// SPDX-License-Identifier: Apache-2.0
// Time enters the engine and the control loop through this seam only, so that tests own it.
#pragma once

#include <time.h>

#include <chrono>
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

/// Milliseconds since 1970: what hosts can compare with each other, as far as their clocks agree.
inline uint64_t WallMs() {
  using namespace std::chrono;
  return static_cast<uint64_t>(duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count());
}

}  // namespace mlnet
