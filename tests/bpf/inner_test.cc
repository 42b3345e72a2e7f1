// SPDX-License-Identifier: Apache-2.0
// An inner node: partial sums go up as one contribution, what comes down is kept for the children (rules 4 and 7).
#include "base/clock.h"
#include "bpf/fixture.h"

namespace mlnet::test {
namespace {

constexpr uint32_t kForever = 4'000'000'000;  // ns: longer than any test
const Mac kParentMac{0x02, 0, 0, 0, 0, 0xb0};

Address LocalIp() { return Ip("169.254.28.12"); }
Address ParentIp() { return Ip("192.0.2.200"); }

class InnerTest : public AggregatorTest {
 protected:
  void SetUp() override {
    host_ = BpfHost::Create();
    ASSERT_NE(host_, nullptr);
    host_->SetJob(Rack(kForever));
  }

  // Children 0 and 1 are ranks of other hosts, child 2 is one of this host.
  static JobSpec Rack(uint32_t forward_ns) {
    JobSpec spec = Job(MLNET_NODE_AGGREGATE | MLNET_NODE_DELIVER | MLNET_NODE_INNER);
    spec.child_addr[2] = AggregatorIp();
    spec.local_children = {2};
    spec.local = LocalIp();
    spec.root = spec.up = ParentIp();
    spec.up_mac = kParentMac;
    spec.up_child = 5;
    spec.forward_ns = forward_ns;
    return spec;
  }
  static Frame FromChild(uint8_t child, uint64_t seq, size_t blocks = 11) {
    Frame f = Contribution(child, seq, blocks);
    if (child == 2) {
      f.saddr = AggregatorIp();
      f.daddr = LocalIp();
    }
    return f;
  }
  static Frame FromAbove(uint8_t type, uint64_t seq) {
    Frame f = Contribution(0, seq);
    f.type = type;
    f.child = type == MLNET_T_RESULT ? MLNET_CHILD_ALL : 5;
    f.src_mac = kParentMac;
    f.saddr = ParentIp();
    f.weight = 9;
    if (type != MLNET_T_RESULT) f.HeaderOnly(176);
    return f;
  }
  static std::vector<uint64_t> SumOfThree(uint64_t seq) {
    std::vector<uint64_t> sum(176);
    for (uint8_t c = 0; c < kChildren; ++c) {
      const auto words = Payload(c, 11, seq);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += words[i];
    }
    return sum;
  }
  void Fill(uint64_t seq) {
    for (uint8_t c : {0, 2}) host_->Run(FromChild(c, seq));
  }
};

TEST_F(InnerTest, lag_is_sampled_of_all_children_the_last_one_too) {
  Fill(0);
  Expect(host_->Run(FromChild(1, 0)), MLNET_V_PARTIAL_TX, XDP_TX);
  for (uint8_t c = 0; c < kChildren; ++c) EXPECT_EQ(host_->Link(kJob, c).lag_count, 1u) << int{c};
  EXPECT_EQ(host_->Link(kJob, 0).lag_ns, 0u);
  EXPECT_GT(host_->Link(kJob, 1).lag_ns, host_->Link(kJob, 2).lag_ns);
}

TEST_F(InnerTest, the_partial_sum_is_one_contribution_to_the_node_above) {
  Fill(1);
  Frame last = FromChild(1, 1);
  last.exps[3] = 77;
  const RunResult run = host_->Run(last);
  Expect(run, MLNET_V_PARTIAL_TX, XDP_TX);
  const Parsed up = ParseFrame(run.frame);
  EXPECT_TRUE(up.check_ok);
  EXPECT_TRUE(up.ip_checksum_ok);
  EXPECT_EQ(up.frame.type, MLNET_T_CONTRIB);
  EXPECT_EQ(up.frame.child, 5);
  EXPECT_EQ(up.frame.seq, 1u);
  EXPECT_EQ(up.frame.weight, 3);
  EXPECT_EQ(up.frame.bitmap, 0u);
  EXPECT_EQ(up.frame.flags, 0);
  EXPECT_EQ(up.frame.exps[3], 77);
  EXPECT_EQ(up.frame.words, SumOfThree(1));
  EXPECT_EQ(up.frame.daddr, ParentIp());
  EXPECT_EQ(up.frame.saddr, AggregatorIp());
  EXPECT_EQ(up.frame.dst_mac, kParentMac);
  EXPECT_EQ(up.frame.src_mac, kAggregatorMac);
}

TEST_F(InnerTest, what_goes_up_and_what_comes_down_have_the_dscp_of_the_class) {
  JobSpec spec = Rack(kForever);
  spec.marks[0] = {34 << 2, 3};
  host_->SetJob(spec);
  Fill(1);
  Frame last = FromChild(1, 1);
  last.tos = 56 << 2;
  const Parsed up = ParseFrame(host_->Run(last).frame);
  EXPECT_EQ(up.frame.tos, 34 << 2);
  EXPECT_TRUE(up.ip_checksum_ok);
  Frame result = FromAbove(MLNET_T_RESULT, 1);
  result.tos = 8 << 2;
  result.Words(SumOfThree(1));
  const RunResult run = host_->Run(result);
  Expect(run, MLNET_V_RESULT_DOWN_FAN, XDP_REDIRECT);
  const Parsed down = ParseFrame(host_->RunEgress(run.meta, run.frame).frame);
  EXPECT_EQ(down.frame.tos, 34 << 2);
  EXPECT_TRUE(down.ip_checksum_ok);
}

TEST_F(InnerTest, what_a_rank_of_the_host_completes_is_redirected_to_the_nic) {
  for (uint8_t c : {0, 1}) host_->Run(FromChild(c, 0));
  const RunResult run = host_->Run(FromChild(2, 0));
  Expect(run, MLNET_V_PARTIAL_REDIRECT, XDP_REDIRECT);
  EXPECT_TRUE(run.meta.empty()) << "one frame, not one per host";
  EXPECT_EQ(ParseFrame(run.frame).frame.daddr, ParentIp());
}

TEST_F(InnerTest, a_retry_forwards_the_partial_sum_again_but_not_at_once) {
  Fill(0);
  host_->Run(FromChild(1, 0));
  const RunResult early = host_->Run(FromChild(0, 0));
  Expect(early, MLNET_V_HELD, XDP_TX);
  EXPECT_EQ(ParseFrame(early.frame).frame.bitmap, 0u) << "nobody is missing here";
  host_->SetJob(Rack(1));
  const RunResult again = host_->Run(FromChild(0, 0));
  Expect(again, MLNET_V_PARTIAL_AGAIN_TX, XDP_TX);
  EXPECT_EQ(ParseFrame(again.frame).frame.words, SumOfThree(0));
  EXPECT_TRUE(ParseFrame(again.frame).check_ok);
}

TEST_F(InnerTest, a_partial_sum_without_room_waits_for_a_full_length_packet) {
  Fill(0);
  Frame empty = FromChild(1, 0);
  empty.HeaderOnly(176);
  empty.flags |= MLNET_F_NO_DATA;
  empty.weight = 0;
  const RunResult asked = host_->Run(empty);
  Expect(asked, MLNET_V_SUM_COMPLETE_UNSENT, XDP_TX);
  EXPECT_EQ(ParseFrame(asked.frame).frame.type, MLNET_T_RESEND);
  const RunResult carried = host_->Run(FromChild(0, 0));
  Expect(carried, MLNET_V_PARTIAL_AGAIN_TX, XDP_TX);
  EXPECT_EQ(ParseFrame(carried.frame).frame.weight, 2);
}

// Members that say so, or whose weights add up to 2^16: what they sent is data all the same.
TEST_F(InnerTest, data_of_weight_0_is_data) {
  host_->SetJob(Rack(1));
  for (uint16_t weight : {0, 1 << 15}) {
    const uint64_t seq = weight == 0 ? 0 : 1;
    for (uint8_t c : {0, 2}) {
      Frame data = FromChild(c, seq);
      data.weight = weight;
      host_->Run(data);
    }
    Frame empty = FromChild(1, seq);
    empty.HeaderOnly(176);
    empty.flags |= MLNET_F_NO_DATA;
    empty.weight = 0;
    Expect(host_->Run(empty), MLNET_V_SUM_COMPLETE_UNSENT, XDP_TX);
    const RunResult carried = host_->Run(FromChild(0, seq));
    Expect(carried, MLNET_V_PARTIAL_AGAIN_TX, XDP_TX);
    const Parsed up = ParseFrame(carried.frame);
    EXPECT_TRUE(up.check_ok);
    EXPECT_EQ(up.frame.flags, MLNET_F_RETRY);
    EXPECT_EQ(up.frame.weight, 0);
    std::vector<uint64_t> sum = Payload(0, 11, seq), other = Payload(2, 11, seq);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
    EXPECT_EQ(up.frame.words, sum);
  }
}

TEST_F(InnerTest, without_any_data_the_header_is_enough) {
  RunResult run;
  for (uint8_t c : {0, 2, 1}) {
    Frame empty = FromChild(c, 0);
    empty.HeaderOnly(176);
    empty.flags |= MLNET_F_NO_DATA;
    empty.weight = 0;
    run = host_->Run(empty);
  }
  Expect(run, MLNET_V_PARTIAL_TX, XDP_TX);
  const Parsed up = ParseFrame(run.frame);
  EXPECT_TRUE(up.check_ok);
  EXPECT_EQ(up.frame.flags, MLNET_F_NO_DATA | MLNET_F_NO_PAYLOAD);
  EXPECT_EQ(up.frame.weight, 0);
  EXPECT_EQ(up.frame.nominal_words, 176);
}

TEST_F(InnerTest, a_result_goes_into_the_inbox_and_down_once_and_answers_retries) {
  Fill(0);
  host_->Run(FromChild(1, 0));
  Frame result = FromAbove(MLNET_T_RESULT, 0);
  result.daddr = AggregatorIp();
  const RunResult down = host_->Run(result);
  Expect(down, MLNET_V_RESULT_DOWN_FAN, XDP_REDIRECT);
  for (uint8_t c : {0, 1}) {
    const Parsed copy = ParseFrame(host_->RunEgress(down.meta, down.frame).frame);
    EXPECT_EQ(copy.frame.daddr, WorkerIp(c));
    EXPECT_EQ(copy.frame.saddr, AggregatorIp()) << "each host takes results from its own parent";
    EXPECT_EQ(copy.frame.words, result.words);
    EXPECT_TRUE(copy.check_ok);
  }
  EXPECT_EQ(host_->RunEgress(down.meta, down.frame).action, XDP_DROP) << "none for this host";
  EXPECT_EQ(host_->Cell(kJob, 0, 0, 0).published, MLNET_STAMP(1, 0));
  EXPECT_EQ(host_->Cell(kJob, 0, 0, 0).weight, 9);
  Expect(host_->Run(result), MLNET_V_DROP_RESULT_OLD, XDP_DROP);
  const RunResult answer = host_->Run(FromChild(1, 0));
  Expect(answer, MLNET_V_RESEND_RESULT, XDP_TX);
  EXPECT_EQ(ParseFrame(answer.frame).frame.words, result.words);
  EXPECT_EQ(ParseFrame(answer.frame).frame.weight, 9);
  EXPECT_TRUE(ParseFrame(answer.frame).check_ok);
}

TEST_F(InnerTest, a_late_result_does_not_touch_the_set_that_took_its_place) {
  const auto result = [](uint64_t seq) { return FromAbove(MLNET_T_RESULT, seq).Words(SumOfThree(seq)); };
  for (const uint64_t seq : {uint64_t{0}, kSlots, 2 * kSlots}) {
    Fill(seq);
    Expect(host_->Run(FromChild(1, seq)), MLNET_V_PARTIAL_TX, XDP_TX);
    if (seq < 2 * kSlots) host_->Run(result(seq));
  }
  Expect(host_->Run(result(0)), MLNET_V_DROP_RESULT_OLD, XDP_DROP);
  const mlnet_slot slot = host_->Slot(kJob, 0, 0);
  EXPECT_EQ(slot.set[0].seq, 2 * kSlots);
  EXPECT_EQ(slot.set[0].state, MLNET_SET_COMPLETE);
  Expect(host_->Run(FromChild(0, 2 * kSlots)), MLNET_V_HELD, XDP_TX);
}

TEST_F(InnerTest, a_multicast_result_is_not_sent_on_but_kept) {
  Fill(0);
  host_->Run(FromChild(1, 0));
  Frame result = FromAbove(MLNET_T_RESULT, 0);
  result.daddr = GroupIp();
  Expect(host_->Run(result), MLNET_V_DELIVERED, XDP_DROP);
  Expect(host_->Run(FromChild(0, 0)), MLNET_V_RESEND_RESULT, XDP_TX);
}

TEST_F(InnerTest, a_resend_from_above_sends_the_sum_with_the_next_full_length_packet) {
  Fill(0);
  host_->Run(FromChild(1, 0));
  Expect(host_->Run(FromAbove(MLNET_T_RESEND, 0)), MLNET_V_NOTICE_DOWN, XDP_DROP);
  const auto notices = host_->TakeNotices(kJob, 0);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].type, MLNET_T_RESEND);
  EXPECT_EQ(notices[0].child, MLNET_CHILD_ALL);
  Expect(host_->Run(FromChild(0, 0)), MLNET_V_PARTIAL_AGAIN_TX, XDP_TX);  // though it was forwarded a moment ago
}

TEST_F(InnerTest, a_ping_of_a_child_goes_up_as_the_nodes_own) {
  Frame ping = FromChild(0, 4711).HeaderOnly(0);
  ping.type = MLNET_T_PING;
  const uint64_t before = MLNET_PING_SEQ(MonotonicClock().NowNs()) - 1;
  const RunResult run = host_->Run(ping);
  Expect(run, MLNET_V_PING_UP_TX, XDP_TX);
  const Parsed up = ParseFrame(run.frame);
  EXPECT_TRUE(up.check_ok);
  EXPECT_TRUE(up.ip_checksum_ok);
  EXPECT_EQ(up.frame.type, MLNET_T_PING);
  EXPECT_GT(up.frame.seq, before);  // by its own clock: children on other hosts have others
  EXPECT_LT(up.frame.seq, before + 60'000'000);
  EXPECT_EQ(up.frame.child, 5);
  EXPECT_EQ(up.frame.saddr, AggregatorIp());
  EXPECT_EQ(up.frame.daddr, ParentIp());
  EXPECT_EQ(up.frame.dst_mac, kParentMac);
  EXPECT_GT(host_->Link(kJob, 0).last_ns, 0u);
  Frame local = FromChild(2, 1).HeaderOnly(0);
  local.type = MLNET_T_PING;
  Expect(host_->Run(local), MLNET_V_PING_UP_REDIRECT, XDP_REDIRECT);
  EXPECT_GT(host_->Link(kJob, 2).last_ns, 0u);
  EXPECT_EQ(host_->Link(kJob, 1).last_ns, 0u);
}

// Ranks of other hosts hear of the root by it alone while nothing is summed.
TEST_F(InnerTest, the_answer_to_a_ping_goes_down_the_way_that_the_ping_came_up) {
  Frame ping = FromChild(0, 4711).HeaderOnly(0);
  ping.type = MLNET_T_PING;
  ping.bitmap = 0x0609;  // it has passed two nodes below this one
  ping.src_mac = WorkerMac(0);
  const Parsed up = ParseFrame(host_->Run(ping).frame);
  EXPECT_EQ(up.frame.bitmap, 0x060900u);
  Frame pong = FromAbove(MLNET_T_PONG, 1).HeaderOnly(0);
  pong.seq = up.frame.seq;
  pong.bitmap = up.frame.bitmap;
  const RunResult run = host_->Run(pong);
  Expect(run, MLNET_V_PONG_DOWN_TX, XDP_TX);
  const Parsed down = ParseFrame(run.frame);
  EXPECT_TRUE(down.check_ok);
  EXPECT_TRUE(down.ip_checksum_ok);
  EXPECT_EQ(down.frame.type, MLNET_T_PONG);
  EXPECT_EQ(down.frame.seq, 4711u);  // by the child's clock
  EXPECT_EQ(down.frame.child, 0);
  EXPECT_EQ(down.frame.bitmap, 0x0609u);
  EXPECT_EQ(down.frame.saddr, AggregatorIp());
  EXPECT_EQ(down.frame.daddr, ping.saddr);
  EXPECT_EQ(down.frame.dst_mac, WorkerMac(0));
  for (const uint64_t way : {2, 1, 44, 255, 0x80}) {  // of this host; never heard; no child, by far
    pong.bitmap = way;
    Expect(host_->Run(pong), MLNET_V_PONG_SEEN, XDP_DROP);
  }
  Frame other = FromChild(1, 815).HeaderOnly(0);
  other.type = MLNET_T_PING;
  other.src_mac = WorkerMac(1);
  pong.bitmap = ParseFrame(host_->Run(other).frame).frame.bitmap;
  EXPECT_EQ(pong.bitmap, 1u);
  const RunResult second = host_->Run(pong);
  Expect(second, MLNET_V_PONG_DOWN_TX, XDP_TX);
  EXPECT_EQ(ParseFrame(second.frame).frame.child, 1);
  EXPECT_EQ(ParseFrame(second.frame).frame.seq, 815u);
  EXPECT_EQ(ParseFrame(second.frame).frame.dst_mac, WorkerMac(1));
  pong.bitmap = up.frame.bitmap;
  pong.flags = 0;
  pong.Words(Payload(0, 2, 0));
  Expect(host_->Run(pong), MLNET_V_DROP_MALFORMED, XDP_DROP);  // it has none, and would leave as one of two lengths
}

TEST_F(InnerTest, probes_of_a_root_further_up_are_heard) {
  JobSpec spec = Rack(kForever);
  spec.root = WorkerIp(7);
  host_->SetJob(spec);
  Frame ping = FromAbove(MLNET_T_PING, 1);
  ping.child = MLNET_CHILD_ALL;
  ping.daddr = spec.group;
  ping.saddr = WorkerIp(7);
  Expect(host_->Run(ping), MLNET_V_PING_SEEN, XDP_DROP);
  ping.saddr = WorkerIp(6);
  Expect(host_->Run(ping), MLNET_V_DROP_NOT_MEMBER, XDP_DROP);
}

TEST_F(InnerTest, nobody_else_may_speak_for_the_node_above) {
  Fill(0);
  host_->Run(FromChild(1, 0));
  Frame result = FromAbove(MLNET_T_RESULT, 0);
  result.saddr = WorkerIp(1);
  Expect(host_->Run(result), MLNET_V_DROP_NOT_PARENT, XDP_DROP);
  Expect(host_->Run(FromChild(0, 0)), MLNET_V_HELD, XDP_TX);
  Frame damaged = FromAbove(MLNET_T_RESULT, 0);
  Bytes bytes = damaged.Build();
  bytes[300] ^= 1;
  Expect(host_->Run(bytes), MLNET_V_DROP_CORRUPT, XDP_DROP);
  EXPECT_EQ(host_->Cell(kJob, 0, 0, 0).published, 0u);
}

}  // namespace
}  // namespace mlnet::test
