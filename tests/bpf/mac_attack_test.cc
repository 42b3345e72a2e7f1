// SPDX-License-Identifier: Apache-2.0
// What a host that is no member can send from the right address, packet upon packet: made up, repeated, cut, or noise. No
// sum, no inbox and no job changes, and each packet is counted for what it is. Short form; MLNET_LONG=1 sends a million of each.
#include "bpf/attack_fixture.h"

namespace mlnet::test {
namespace {

class MacAttack : public AttackFixture {
 protected:
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
  ExpectCutAndNoise(next, 4);

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
  ExpectCutAndNoise(next, 4);
  EXPECT_EQ(NumRecords(true), 0u);
  // A reply is what it was: it changes no inbox, and its rank looks what it waits for.
  const Bytes held = Reply(MLNET_T_HELD, 1).Build();
  for (const auto& [verdict, count] : Send("repeated, a reply", Again(held))) EXPECT_TRUE(verdict == "NOTICE" || verdict == "NOTICE_LOST") << verdict;

  EXPECT_EQ(State(true), before);
  Expect(host_->Run(next), MLNET_V_DELIVERED, XDP_DROP);
}

}  // namespace
}  // namespace mlnet::test
