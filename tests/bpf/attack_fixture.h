// SPDX-License-Identifier: Apache-2.0
// Packet upon packet of one kind, and what becomes of them. Short form; MLNET_LONG=1 sends a million of each.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "bpf/mac_fixture.h"

namespace mlnet::test {

using Counts = std::map<std::string, uint64_t>;

inline uint64_t NumSent() {
  const char* is_long = std::getenv("MLNET_LONG");
  return is_long != nullptr && std::string(is_long) == "1" ? 1'000'000 : 10'000;
}

inline void PutLe64(Bytes& bytes, size_t at, uint64_t value) { std::memcpy(&bytes[at], &value, sizeof(value)); }
inline uint64_t Le64(const Bytes& bytes, size_t at) {
  uint64_t value;
  std::memcpy(&value, &bytes[at], sizeof(value));
  return value;
}

/// Without its last bytes; IP and UDP say so where `is_consistent`.
inline Bytes Shorter(Bytes frame, size_t bytes, bool is_consistent) {
  frame.resize(frame.size() - bytes);
  if (!is_consistent) return frame;
  const size_t udp = HeaderAt(frame) - 8, ip_length = IsIpv6Run() ? 18 : 16, ip_bytes = IsIpv6Run() ? frame.size() - udp : frame.size() - 14;
  const auto put = [&](size_t at, size_t value) {
    frame[at] = static_cast<uint8_t>(value >> 8);
    frame[at + 1] = static_cast<uint8_t>(value);
  };
  put(ip_length, ip_bytes);
  put(udp + 4, frame.size() - udp);
  return frame;
}

class AttackFixture : public MacFixture {
 protected:
  /// Sends as many packets as each kind has, each as `make` has it; gives the verdicts.
  Counts Send(const char* what, const std::function<const Bytes&(uint64_t)>& make) {
    const uint64_t n = NumSent();
    const auto counters = [&] {
      std::array<uint64_t, MLNET_V_COUNT> counts{};
      for (const uint16_t job : {uint16_t{0}, kJob}) {
        const mlnet_stats stats = host_->Stats(job);
        for (size_t v = 0; v < counts.size(); ++v) counts[v] += stats.verdicts[v];
      }
      return counts;
    };
    const auto before = counters();
    for (uint64_t i = 0; i < n; ++i) host_->RunQuick(make(i));
    const auto after = counters();
    Counts landed;
    uint64_t sum = 0;
    for (unsigned v = 0; v < MLNET_V_COUNT; ++v) {
      if (after[v] == before[v]) continue;
      sum += landed[wire::VerdictOf(v).name] = after[v] - before[v];
    }
    EXPECT_EQ(sum, n) << what << ": each packet is counted once";
    for (const auto& [verdict, count] : landed) {
      std::printf("  %-44s %-16s %8llu\n", what, verdict.c_str(), static_cast<unsigned long long>(count));
    }
    return landed;
  }
  /// All of them end in one verdict.
  void ExpectAll(const char* what, const char* verdict, const std::function<const Bytes&(uint64_t)>& make) {
    EXPECT_EQ(Send(what, make), (Counts{{verdict, NumSent()}})) << what;
  }
  /// Each of them is dropped, whatever for.
  void ExpectDropped(const char* what, const std::function<const Bytes&(uint64_t)>& make) {
    for (const auto& [verdict, count] : Send(what, make)) EXPECT_EQ(verdict.substr(0, 5), "DROP_") << what;
  }

  /// `flips_max`: so many bits that are not as they were never escape.
  void ExpectCutAndNoise(const Bytes& seen, uint64_t flips_max) {
    Bytes bytes;
    const size_t most = seen.size() - HeaderAt(seen);
    const auto cut = [&](bool is_consistent) {
      return [&, is_consistent](uint64_t i) -> const Bytes& { return bytes = Shorter(seen, 1 + i % most, is_consistent); };
    };
    ExpectDropped("cut, lengths changed to match", cut(true));
    // IP says more than there is: not a packet of ours, or one in several buffers.
    for (const auto& [verdict, count] : Send("cut, lengths as they were", cut(false))) {
      EXPECT_TRUE(verdict == "PASS_NOT_OURS" || verdict.starts_with("DROP_")) << verdict;
    }
    ExpectDropped("noise behind the UDP header", [&](uint64_t) -> const Bytes& {
      bytes = seen;
      for (size_t at = HeaderAt(bytes); at < bytes.size(); ++at) bytes[at] = static_cast<uint8_t>(random_());
      return bytes;
    });
    ExpectAll("noise behind a right header", "DROP_CORRUPT", [&](uint64_t) -> const Bytes& {
      bytes = seen;
      for (size_t at = PayloadAt(bytes); at < bytes.size(); ++at) bytes[at] = static_cast<uint8_t>(random_());
      return bytes;
    });
    ExpectDropped("some bits flipped", [&](uint64_t) -> const Bytes& {
      bytes = seen;
      for (uint64_t flips = 1 + random_() % flips_max; flips > 0; --flips) {
        const size_t bit = HeaderAt(bytes) * 8 + random_() % (most * 8);
        bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      }
      if (bytes == seen) bytes.back() ^= 1;  // the same bit twice
      return bytes;
    });
  }
  static std::function<const Bytes&(uint64_t)> Again(const Bytes& seen) {
    return [&seen](uint64_t) -> const Bytes& { return seen; };
  }

  std::mt19937_64 random_{11};
};

}  // namespace mlnet::test
