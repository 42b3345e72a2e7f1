// SPDX-License-Identifier: Apache-2.0
// What a host that is no member can send from the right address, packet upon packet: made up, repeated, cut, or noise. No
// sum, no inbox and no job changes, and each packet is counted for what it is. Short form; MLNET_LONG=1 sends a million of each.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "bpf/mac_fixture.h"

namespace mlnet::test {
namespace {

using Counts = std::map<std::string, uint64_t>;

uint64_t NumSent() {
  const char* is_long = std::getenv("MLNET_LONG");
  return is_long != nullptr && std::string(is_long) == "1" ? 1'000'000 : 10'000;
}

void PutLe64(Bytes& bytes, size_t at, uint64_t value) { std::memcpy(&bytes[at], &value, sizeof(value)); }
uint64_t Le64(const Bytes& bytes, size_t at) {
  uint64_t value;
  std::memcpy(&value, &bytes[at], sizeof(value));
  return value;
}

/// Without its last bytes; IP and UDP say so where `is_consistent`.
Bytes Shorter(Bytes frame, size_t bytes, bool is_consistent) {
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

class MacAttack : public MacFixture {
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

  /// `seen` with words and exponents that its sender never had, the check word that they must have, and a guess at the tag.
  void ExpectMadeUp(const char* what, const Bytes& seen) {
    Bytes forged = seen;
    const size_t payload = PayloadAt(seen), check = seen.size() - MLNET_MAC_BYTES - 42;
    ExpectAll(what, "DROP_MAC", [&](uint64_t i) -> const Bytes& {
      if (check > payload) {
        const size_t at = payload + i % ((check - payload) / 8) * 8;
        const uint64_t word = random_();
        PutLe64(forged, check, Le64(forged, check) + word - Le64(forged, at));
        PutLe64(forged, at, word);
      }
      PutLe64(forged, forged.size() - MLNET_MAC_BYTES, random_());
      return forged;
    });
  }
  void ExpectCutAndNoise(const Bytes& seen) {
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
      for (uint64_t flips = 1 + random_() % 4; flips > 0; --flips) {
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

TEST_F(MacAttack, nothing_that_is_sent_to_a_root_changes_a_sum_or_a_link) {
  Root();
  const Bytes oldest = FromChild(0, 0).Build(), ping = Ping(0, 77).Build();
  for (uint64_t seq = 0; seq <= 2 * kSlots; ++seq) {
    for (uint8_t c = 0; c < kChildren; ++c) host_->Run(FromChild(c, seq));
  }
  const uint64_t open = 2 * kSlots + 1, whole = 2 * kSlots;
  host_->Run(ping);
  host_->Run(FromChild(1, open));
  const Bytes before = State(false);
  host_->TakeEvents();

  const Bytes next = FromChild(0, open).Build(), untagged = Tagged(FromChild(0, open), nullptr).Build();
  ExpectMadeUp("contribution, words and tag made up", next);
  ExpectAll("contribution without a tag", "DROP_MAC", Again(untagged));
  ExpectAll("contribution, tag of another epoch's key", "DROP_MAC", Again(Tagged(FromChild(0, open), &kOtherKey).Build()));
  ExpectMadeUp("PING, tag made up", ping);
  const Bytes counted = FromChild(1, open).Build(), complete = FromChild(1, whole).Build();
  ExpectAll("repeated, counted in an open sum", "HELD", Again(counted));
  ExpectAll("repeated, of a sum that is complete", "RESEND_RESULT", Again(complete));
  ExpectAll("repeated, older than the copy", "DROP_STALE", Again(oldest));
  Frame earlier = FromChild(0, open);
  earlier.epoch = 0;
  ExpectAll("repeated, of an earlier epoch", "DROP_EPOCH", Again(earlier.Build()));
  ExpectAll("repeated, a PING", "DROP_PING_OLD", Again(ping));
  ExpectCutAndNoise(next);

  EXPECT_EQ(State(false), before);
  EXPECT_TRUE(host_->TakeEvents().empty());
  Expect(host_->Run(next), MLNET_V_SUM_ADD, XDP_DROP);  // as if nobody had tried
}

TEST_F(MacAttack, nothing_that_is_sent_to_a_host_of_ranks_changes_an_inbox) {
  Worker();
  const Bytes oldest = Result(0).Build(), last = Result(kSlots).Build(), next = Result(1).Build();
  host_->Run(oldest);
  host_->Run(Result(2 * kSlots));
  host_->Run(last);
  const Bytes before = State(true);

  ExpectMadeUp("result, words and tag made up", next);
  ExpectMadeUp("reply, tag made up", Reply(MLNET_T_MISMATCH, 1).Build());
  const Bytes untagged = Tagged(Result(1), nullptr).Build(), answer = Pong(1, 10'000'000'000).Build();
  ExpectAll("result without a tag", "DROP_MAC", Again(untagged));
  ExpectAll("repeated, a result that was read", "DROP_RESULT_OLD", Again(last));
  ExpectAll("repeated, a result of long ago", "DROP_RESULT_OLD", Again(oldest));
  ExpectAll("repeated, an answer to a PING", "DROP_PING_OLD", Again(answer));
  ExpectCutAndNoise(next);
  EXPECT_EQ(NumRecords(true), 0u);
  // A reply is what it was: it changes no inbox, and its rank looks what it waits for.
  const Bytes held = Reply(MLNET_T_HELD, 1).Build();
  for (const auto& [verdict, count] : Send("repeated, a reply", Again(held))) EXPECT_TRUE(verdict == "NOTICE" || verdict == "NOTICE_LOST") << verdict;

  EXPECT_EQ(State(true), before);
  Expect(host_->Run(next), MLNET_V_DELIVERED, XDP_DROP);
}

}  // namespace
}  // namespace mlnet::test
