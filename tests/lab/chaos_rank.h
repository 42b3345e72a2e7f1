// SPDX-License-Identifier: Apache-2.0
// A rank of a chaos round, in a process of its own: collectives of random kinds and sizes, each checked, until one fails.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace mlnet::test {

/// What a rank tells the test; in memory that both map.
struct ChaosReport {
  std::atomic<uint64_t> calls, elements;
  std::atomic<uint32_t> is_over;
  std::atomic<uint64_t> over_ns;  // CLOCK_MONOTONIC
  bool is_wrong;                  // a result that is not the sum
  char error[1024];
};

struct ChaosJob {
  std::string name;
  uint64_t seed = 0;
  std::vector<std::string> hosts;  // by rank
  uint32_t timeout_ms = 0;         // of a collective
  bool mac = false;
  size_t count_max = 60'000;       // elements of every eighth call; of the others a twentieth of it
};

/// Until a call fails, or `should_end` is set and all ranks agree on that in a call of their own. Never returns.
[[noreturn]] void RunChaosRank(const ChaosJob& job, int rank, const std::string& socket, const std::atomic<uint32_t>& should_end,
                               ChaosReport& report);

}  // namespace mlnet::test
