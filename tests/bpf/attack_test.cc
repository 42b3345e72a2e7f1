// SPDX-License-Identifier: Apache-2.0
// The same without tags, where admission and the check word are all there is: from an address that is no member's, with a check
// word that is guessed, repeated, cut, or noise. No sum, no inbox and no job changes, and each packet is counted for what it is.
#include "bpf/attack_fixture.h"

namespace mlnet::test {
namespace {

// The check word is a sum: of one bit it always tells, of several not.
constexpr uint64_t kFlips = 1;

class Attack : public AttackFixture {
 protected:
  static Bytes Build(Frame f) { return Tagged(std::move(f), nullptr).Build(); }
  static Frame FromStranger(Frame f) {
    f.saddr = Ip("192.0.2.99");
    return f;
  }
  /// `seen` with another word each time; the check word that it must have, or a guess at it.
  std::function<const Bytes&(uint64_t)> MadeUp(const Bytes& seen, bool has_check) {
    forged_ = seen;
    return [this, has_check, payload = PayloadAt(seen)](uint64_t i) -> const Bytes& {
      const size_t check = forged_.size() - 42, at = payload + i % ((check - payload) / 8) * 8;
      const uint64_t word = random_(), right = Le64(forged_, check) + word - Le64(forged_, at);
      PutLe64(forged_, at, word);
      PutLe64(forged_, check, has_check ? right : random_());
      return forged_;
    };
  }

 private:
  Bytes forged_;
};

TEST_F(Attack, nothing_that_is_sent_to_a_root_changes_a_sum_or_a_link) {
  Root(MLNET_NODE_MULTICAST, nullptr);
  const Bytes oldest = Build(FromChild(0, 0));
  for (uint64_t seq = 0; seq <= 2 * kSlots; ++seq) {
    for (uint8_t c = 0; c < kChildren; ++c) host_->Run(Build(FromChild(c, seq)));
  }
  const uint64_t open = 2 * kSlots + 1, whole = 2 * kSlots;
  host_->Run(Build(FromChild(1, open)));
  const Bytes before = State(false);
  host_->TakeEvents();

  const Bytes next = Build(FromChild(0, open)), counted = Build(FromChild(1, open)), complete = Build(FromChild(1, whole));
  ExpectAll("contribution, address of no member", "DROP_NOT_MEMBER", MadeUp(Build(FromStranger(FromChild(0, open))), true));
  ExpectAll("contribution, check word guessed", "DROP_CORRUPT", MadeUp(next, false));
  ExpectAll("contribution with a tag", "DROP_MALFORMED", Again(FromChild(0, open).Build()));
  ExpectAll("PING, address of no member", "DROP_NOT_MEMBER", Again(Build(FromStranger(Ping(0, 77)))));
  ExpectAll("repeated, counted in an open sum", "HELD", Again(counted));
  ExpectAll("repeated, of a sum that is complete", "RESEND_RESULT", Again(complete));
  ExpectAll("repeated, older than the copy", "DROP_STALE", Again(oldest));
  Frame earlier = FromChild(0, open);
  earlier.epoch = 0;
  ExpectAll("repeated, of an earlier epoch", "DROP_EPOCH", Again(Build(earlier)));
  ExpectCutAndNoise(next, kFlips);

  EXPECT_EQ(State(false), before);
  EXPECT_TRUE(host_->TakeEvents().empty());
  Expect(host_->Run(next), MLNET_V_SUM_ADD, XDP_DROP);  // as if nobody had tried
}

TEST_F(Attack, nothing_that_is_sent_to_a_host_of_ranks_changes_an_inbox) {
  JobSpec spec = Job(MLNET_NODE_DELIVER);
  spec.local_children = {1, 2};
  host_->SetJob(spec);
  const Bytes oldest = Build(Result(0)), last = Build(Result(kSlots)), next = Build(Result(1));
  host_->Run(oldest);
  host_->Run(Build(Result(2 * kSlots)));
  host_->Run(last);
  const Bytes before = State(true);

  ExpectAll("result, address of no node above", "DROP_NOT_PARENT", MadeUp(Build(FromStranger(Result(1))), true));
  ExpectAll("result, check word guessed", "DROP_CORRUPT", MadeUp(next, false));
  ExpectAll("result with a tag", "DROP_MALFORMED", Again(Result(1).Build()));
  ExpectAll("reply, address of no node above", "DROP_NOT_PARENT", Again(Build(FromStranger(Reply(MLNET_T_MISMATCH, 1)))));
  ExpectAll("repeated, a result that was read", "DROP_RESULT_OLD", Again(last));
  ExpectAll("repeated, a result of long ago", "DROP_RESULT_OLD", Again(oldest));
  ExpectCutAndNoise(next, kFlips);
  EXPECT_EQ(NumRecords(true), 0u);

  EXPECT_EQ(State(true), before);
  Expect(host_->Run(next), MLNET_V_DELIVERED, XDP_DROP);
}

}  // namespace
}  // namespace mlnet::test
