// SPDX-License-Identifier: Apache-2.0
// Rule 3 and rule 7: who may use a set, and what a duplicate gets.
#include <cstring>

#include "bpf/fixture.h"

namespace mlnet::test {
namespace {

using SlotTest = AggregatorTest;

TEST_F(SlotTest, duplicate_in_an_incomplete_set_is_held_and_counted_once) {
  host_->Run(Contribution(0, 0));
  host_->Run(Contribution(1, 0));
  const mlnet_words before = host_->Words(kJob, 0, 0, 0);
  const RunResult run = host_->Run(Contribution(1, 0));
  Expect(run, MLNET_V_HELD, XDP_TX);
  const Parsed reply = ParseFrame(run.frame);
  EXPECT_EQ(reply.frame.type, MLNET_T_HELD);
  EXPECT_EQ(reply.frame.bitmap, 0b100u) << "names the missing child";
  EXPECT_EQ(reply.frame.child, 1);
  EXPECT_EQ(reply.frame.daddr, WorkerIp(1));
  EXPECT_EQ(reply.frame.saddr, AggregatorIp());
  EXPECT_EQ(reply.frame_bytes, IsIpv6Run() ? 126u : 106u) << "header and trailer only";
  EXPECT_TRUE(reply.check_ok);
  EXPECT_TRUE(reply.ip_checksum_ok);
  const mlnet_words after = host_->Words(kJob, 0, 0, 0);
  EXPECT_EQ(std::memcmp(&before, &after, sizeof(before)), 0);
  EXPECT_EQ(host_->Slot(kJob, 0, 0).set[0].weight, 2);
}

TEST_F(SlotTest, duplicate_of_a_complete_set_is_answered_from_the_copy) {
  const Parsed first = ParseFrame(Complete(0).frame);
  const RunResult run = host_->Run(Contribution(2, 0));
  Expect(run, MLNET_V_RESEND_RESULT, XDP_TX);
  const Parsed again = ParseFrame(run.frame);
  EXPECT_EQ(again.frame.words, first.frame.words);
  EXPECT_EQ(again.frame.weight, first.frame.weight);
  EXPECT_EQ(again.frame.daddr, WorkerIp(2));
  EXPECT_EQ(again.frame.dst_mac, WorkerMac(2));
  EXPECT_TRUE(again.check_ok);
}

TEST_F(SlotTest, pool_without_words_asks_for_them_and_works_from_then_on) {
  const auto of_class_1 = [](uint8_t child) {
    Frame f = Contribution(child, 0);
    f.class_stream = 1;
    return f;
  };
  host_->TakeWordsAway(kJob, 1);
  Bytes damaged = of_class_1(0).Build();
  damaged[700] ^= 1;
  Expect(host_->Run(damaged), MLNET_V_DROP_CORRUPT, XDP_DROP);  // and asks for nothing
  Expect(host_->Run(of_class_1(0)), MLNET_V_DROP_NO_POOL, XDP_DROP);
  const auto events = host_->TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].event, static_cast<uint32_t>(MLNET_EV_POOL_WANTED));
  EXPECT_EQ(events[0].job, kJob);
  EXPECT_EQ(events[0].class_stream, 1);
  EXPECT_EQ(host_->Slot(kJob, 1, 0).set[0].state, MLNET_SET_EMPTY);
  host_->GiveWords(kJob, 1);
  for (const uint8_t child : {0, 1}) host_->Run(of_class_1(child));
  const Parsed result = ParseFrame(host_->Run(of_class_1(2)).frame);
  EXPECT_EQ(result.frame.type, MLNET_T_RESULT);
  EXPECT_EQ(result.frame.weight, 3);
  // A pool that the job does not have at all is nobody's wish.
  Frame closed = Contribution(0, 0);
  closed.class_stream = 2;
  Expect(host_->Run(closed), MLNET_V_DROP_NO_POOL, XDP_DROP);
  EXPECT_TRUE(host_->TakeEvents().empty());
}

TEST_F(SlotTest, tells_of_complete_sums_while_somebody_looks) {
  JobSpec spec = Job(MLNET_NODE_AGGREGATE | MLNET_NODE_MULTICAST);
  Complete(0);
  EXPECT_TRUE(host_->TakeEvents().empty());
  spec.flags |= MLNET_NODE_TRACE;
  host_->SetJob(spec);
  for (const uint64_t seq : {1, 2}) {
    Complete(seq);
    host_->Run(Contribution(0, seq));  // a retry is answered, and tells nothing
  }
  const auto events = host_->TakeEvents();
  ASSERT_EQ(events.size(), 2u);
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(events[i].event, static_cast<uint32_t>(MLNET_EV_SUMMED));
    EXPECT_EQ(events[i].job, kJob);
    EXPECT_EQ(events[i].seq, i + 1);
    EXPECT_GT(events[i].a, 0u) << "time since the first contribution";
    EXPECT_LT(events[i].a, 1'000'000'000u);
  }
  EXPECT_LT(events[0].time_ns, events[1].time_ns - events[1].a) << "the second began after the first was complete";
}

// The network's priorities hold on the way back too, whatever the packet came with. ECN is the network's.
TEST_F(SlotTest, what_leaves_has_the_dscp_of_its_class) {
  JobSpec spec = Job(MLNET_NODE_AGGREGATE | MLNET_NODE_MULTICAST);
  spec.marks[1] = {46 << 2, 1};
  host_->SetJob(spec);
  const auto with_tos = [](uint8_t child, uint8_t tos) {
    Frame f = Contribution(child, 0);
    f.class_stream = 1;
    f.tos = tos;
    return f;
  };
  host_->Run(with_tos(0, 8 << 2));
  EXPECT_EQ(ParseFrame(host_->Run(with_tos(0, 56 << 2)).frame).frame.tos, 46 << 2);  // HELD
  host_->Run(with_tos(1, 0));
  const Parsed result = ParseFrame(host_->Run(with_tos(2, (10 << 2) | 0x3)).frame);
  EXPECT_EQ(result.frame.type, MLNET_T_RESULT);
  EXPECT_EQ(result.frame.tos, (46 << 2) | 0x3);
  EXPECT_TRUE(result.ip_checksum_ok);
  spec.marks[1] = {1 << 2, 8};
  host_->SetJob(spec);
  const Parsed again = ParseFrame(host_->Run(with_tos(1, 63 << 2)).frame);  // from the copy
  EXPECT_EQ(again.frame.type, MLNET_T_RESULT);
  EXPECT_EQ(again.frame.tos, 1 << 2);
  EXPECT_TRUE(again.ip_checksum_ok);
}

// RFC 3168: 3 is "congestion experienced", 1 and 2 "could be told so".
TEST_F(SlotTest, the_result_says_whether_a_queue_marked_a_contribution) {
  for (uint8_t ecn = 0; ecn < 4; ++ecn) {
    const auto with_ecn = [&](uint8_t child, uint8_t tos) {
      Frame f = Contribution(child, ecn);
      f.tos = tos;
      return f;
    };
    host_->Run(with_ecn(0, 0));
    host_->Run(with_ecn(1, static_cast<uint8_t>(40 << 2 | ecn)));
    const Parsed result = ParseFrame(host_->Run(with_ecn(2, 2)).frame);
    EXPECT_EQ(result.frame.type, MLNET_T_RESULT);
    EXPECT_EQ(result.frame.flags & MLNET_F_CE, ecn == 3 ? MLNET_F_CE : 0) << int{ecn};
    EXPECT_EQ(result.frame.tos & 3, 2) << "queues on the way down can mark it";
    EXPECT_TRUE(result.check_ok);
    const Parsed copy = ParseFrame(host_->Run(with_ecn(0, 3)).frame);  // is in the sum already
    EXPECT_EQ(copy.frame.flags & MLNET_F_CE, ecn == 3 ? MLNET_F_CE : 0);
  }
}

TEST_F(SlotTest, shadow_copy_answers_while_the_other_set_fills) {
  const Parsed first = ParseFrame(Complete(0).frame);
  host_->Run(Contribution(0, kSlots));
  const RunResult run = host_->Run(Contribution(1, 0));
  Expect(run, MLNET_V_RESEND_RESULT, XDP_TX);
  EXPECT_EQ(ParseFrame(run.frame).frame.words, first.frame.words);
  EXPECT_EQ(host_->Slot(kJob, 0, 0).set[1].contributed, 0b001u);
}

TEST_F(SlotTest, set_is_claimed_by_exactly_two_pools_later_once_all_proved) {
  Complete(1);
  Complete(1 + kSlots);
  Expect(host_->Run(Contribution(0, 1 + 2 * kSlots)), MLNET_V_SUM_FIRST, XDP_DROP);
  EXPECT_EQ(host_->Slot(kJob, 0, 1).set[0].seq, 1 + 2 * kSlots);
}

TEST_F(SlotTest, set_with_an_unproved_shadow_is_busy) {
  Complete(0);
  host_->Run(Contribution(0, kSlots));
  host_->Run(Contribution(1, kSlots));  // child 2 may still need the result of seq 0
  const RunResult run = host_->Run(Contribution(0, 2 * kSlots));
  Expect(run, MLNET_V_BUSY, XDP_TX);
  EXPECT_EQ(ParseFrame(run.frame).frame.type, MLNET_T_BUSY);
  EXPECT_EQ(ParseFrame(run.frame).frame.seq, 2 * kSlots);
  EXPECT_EQ(host_->Slot(kJob, 0, 0).set[0].seq, 0u);
}

TEST_F(SlotTest, second_set_of_a_fresh_epoch_waits_for_the_first) {
  Expect(host_->Run(Contribution(0, kSlots)), MLNET_V_BUSY, XDP_TX);
  host_->Run(Contribution(0, 0));
  Expect(host_->Run(Contribution(0, kSlots)), MLNET_V_BUSY, XDP_TX);
  Complete(0);
  Expect(host_->Run(Contribution(0, kSlots)), MLNET_V_SUM_FIRST, XDP_DROP);
}

TEST_F(SlotTest, seq_far_ahead_is_busy_and_changes_nothing) {
  for (const uint64_t seq : {2 * kSlots, 4 * kSlots, uint64_t{1} << 40, uint64_t{MLNET_SEQ_MASK}})
    Expect(host_->Run(Contribution(0, seq)), MLNET_V_BUSY, XDP_TX);
  EXPECT_EQ(host_->Slot(kJob, 0, 0).set[0].state, MLNET_SET_EMPTY);
}

TEST_F(SlotTest, older_than_the_shadow_copy_is_stale) {
  Complete(2);
  Complete(2 + kSlots);
  Complete(2 + 2 * kSlots);
  Expect(host_->Run(Contribution(1, 2)), MLNET_V_DROP_STALE, XDP_DROP);
}

TEST_F(SlotTest, new_epoch_finds_every_set_empty) {
  Complete(0);
  Complete(kSlots);
  JobSpec spec = Job(MLNET_NODE_AGGREGATE | MLNET_NODE_MULTICAST);
  spec.epoch = 2;
  host_->SetJob(spec);
  Expect(host_->Run(Contribution(0, 2 * kSlots)), MLNET_V_DROP_EPOCH, XDP_DROP);
  Frame f = Contribution(0, 0);
  f.epoch = 2;
  Expect(host_->Run(f), MLNET_V_SUM_FIRST, XDP_DROP);
  f = Contribution(1, kSlots);
  f.epoch = 2;
  Expect(host_->Run(f), MLNET_V_BUSY, XDP_TX);  // the shadow of epoch 1 proves nothing
}

TEST_F(SlotTest, seq_passes_two_to_the_32_without_a_seam) {
  const uint64_t first = (uint64_t{1} << 32) - kSlots;  // in set 1 (2^32 is a multiple of 2P)
  mlnet_slot slot{};
  for (uint32_t s = 0; s < 2; ++s) {
    slot.set[s].state = MLNET_SET_COMPLETE;
    slot.set[s].epoch = 1;
    slot.set[s].proved = 0b111;
    slot.set[s].contributed = 0b111;
    slot.set[s].seq = first - (s == 0 ? 1 : 2) * kSlots;
  }
  host_->SetSlot(kJob, 0, 0, slot);
  for (uint64_t k = 0; k < 4; ++k) {
    const RunResult run = Complete(first + k * kSlots, 1);
    Expect(run, MLNET_V_SUM_COMPLETE_TX, XDP_TX);
    EXPECT_EQ(ParseFrame(run.frame).frame.seq, first + k * kSlots);
  }
  Expect(host_->Run(Contribution(0, 0)), MLNET_V_DROP_STALE, XDP_DROP);
}

TEST_F(SlotTest, another_collective_in_the_slot_is_a_mismatch_and_an_event) {
  host_->Run(Contribution(0, 0));
  Frame other = Contribution(1, 0);
  other.fingerprint = 0x55667788;
  const RunResult run = host_->Run(other);
  Expect(run, MLNET_V_MISMATCH, XDP_TX);
  EXPECT_EQ(ParseFrame(run.frame).frame.type, MLNET_T_MISMATCH);
  EXPECT_EQ(ParseFrame(run.frame).frame.fingerprint, 0x11223344u) << "shows what the slot holds";
  EXPECT_EQ(host_->Slot(kJob, 0, 0).set[0].contributed, 0b001u);
  const auto events = host_->TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].event, MLNET_EV_MISMATCH);
  EXPECT_EQ(events[0].child, 1);
  EXPECT_EQ(events[0].a, 0x11223344u);
  EXPECT_EQ(events[0].b, 0x55667788u);
}

TEST_F(SlotTest, other_size_or_operation_in_the_slot_is_a_mismatch) {
  host_->Run(Contribution(0, 0));
  Expect(host_->Run(Contribution(1, 0, 10)), MLNET_V_MISMATCH, XDP_TX);
  Frame other = Contribution(1, 0);
  other.op = MLNET_OP_OR;
  Expect(host_->Run(other), MLNET_V_MISMATCH, XDP_TX);
}

TEST_F(SlotTest, children_links_are_learnt_and_lag_is_sampled) {
  Complete(0);
  for (uint8_t c = 0; c < kChildren; ++c) {
    const mlnet_link link = host_->Link(kJob, c);
    EXPECT_EQ(std::memcmp(&link.mac, WorkerMac(c).data(), 6), 0);
    EXPECT_EQ(link.lag_count, 1u);
    EXPECT_GT(link.last_ns, 0u);
  }
  EXPECT_EQ(host_->Link(kJob, 0).lag_ns, 0u) << "the first of a set has no lag";
  EXPECT_GT(host_->Link(kJob, 2).lag_ns, 0u);
  EXPECT_LT(host_->Link(kJob, 2).lag_ns, 60'000'000'000u) << "a difference, not a time";
}

}  // namespace
}  // namespace mlnet::test
