// SPDX-License-Identifier: Apache-2.0
// The server of a root: a sum lies in the server's inbox, waits there for the answer, and the answer is the result.
#include "bpf/fixture.h"

namespace mlnet::test {
namespace {

constexpr uint32_t kForever = 4'000'000'000;  // ns: longer than any test
constexpr uint8_t kServerFlags = MLNET_NODE_AGGREGATE | MLNET_NODE_SERVER;

Address LocalIp() { return Ip("169.254.28.12"); }

std::vector<uint64_t> SumOfThree(uint64_t seq) {
  std::vector<uint64_t> sum(176);
  for (uint8_t c = 0; c < kChildren; ++c) {
    const auto words = Payload(c, 11, seq);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += words[i];
  }
  return sum;
}

// Children 0 and 1 are ranks of other hosts, child 2 is one of the root's, where the server runs too.
JobSpec Root(uint32_t forward_ns, uint8_t more_flags = MLNET_NODE_MULTICAST) {
  JobSpec spec = Job(kServerFlags | MLNET_NODE_DELIVER | more_flags);
  spec.child_addr[2] = AggregatorIp();
  spec.local_children = {2};
  spec.local = LocalIp();
  spec.forward_ns = forward_ns;
  return spec;
}

class ServerTest : public AggregatorTest {
 protected:
  void SetUp() override {
    host_ = BpfHost::Create();
    ASSERT_NE(host_, nullptr);
    host_->SetJob(Root(kForever));
  }

  static Frame Push(uint8_t child, uint64_t seq, size_t blocks = 11) {
    Frame f = Contribution(child, seq, blocks);
    f.flags = MLNET_F_SERVER;
    if (child == 2) {
      f.saddr = AggregatorIp();
      f.daddr = LocalIp();
    }
    return f;
  }
  static Frame Pull(uint8_t child, uint64_t seq) {
    Frame f = Push(child, seq);
    f.HeaderOnly(176);
    f.flags |= MLNET_F_NO_DATA;
    f.weight = 0;
    return f;
  }
  static Frame Answer(uint64_t seq) {
    Frame f = Push(2, seq);
    f.type = MLNET_T_ANSWER;
    f.child = MLNET_CHILD_ALL;
    f.weight = 3;
    f.exps[4] = 99;
    f.Words(Payload(6, 11, seq));
    return f;
  }
  RunResult Fill(uint64_t seq) {
    RunResult last;
    for (uint8_t c : {0, 2, 1}) last = host_->Run(Push(c, seq));
    return last;
  }
  mlnet_set Set(uint64_t seq) { return host_->Slot(kJob, 0, seq % kSlots).set[seq / kSlots % 2]; }
};

TEST_F(ServerTest, the_sum_lies_in_the_servers_inbox_and_nothing_leaves) {
  for (uint8_t c : {0, 2}) host_->Run(Push(c, 1));
  EXPECT_EQ(host_->ServerCell(kJob, 0, 1, 0).published, 0u) << "not before it is complete";
  Frame last = Push(1, 1);
  last.exps[3] = 77;
  last.flags |= MLNET_F_NONFINITE;
  Expect(host_->Run(last), MLNET_V_SUM_TO_SERVER, XDP_DROP);
  const mlnet_cell cell = host_->ServerCell(kJob, 0, 1, 0);
  EXPECT_EQ(cell.published, MLNET_STAMP(1, 1));
  EXPECT_EQ(std::vector<uint64_t>(cell.w, cell.w + 176), SumOfThree(1));
  EXPECT_EQ(cell.weight, 3);
  EXPECT_EQ(cell.exps[3], 77);
  EXPECT_EQ(cell.flags, MLNET_F_SERVER | MLNET_F_NONFINITE);
  EXPECT_EQ(cell.bitmap, 0u) << "no answer yet";
  EXPECT_EQ(host_->Cell(kJob, 0, 1, 0).published, 0u) << "not a result for the ranks";
  EXPECT_EQ(host_->Stats(kJob).contributions, 3u);
}

TEST_F(ServerTest, a_sleeping_server_is_woken_once) {
  host_->SetServerAsleep(kJob, 1);
  Fill(0);
  Fill(1);
  const auto notices = host_->TakeServerNotices(kJob);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].type, 0);
}

TEST_F(ServerTest, the_answer_leaves_as_the_result_and_is_kept) {
  Fill(1);
  const Frame answer = Answer(1);
  const RunResult run = host_->Run(answer);
  Expect(run, MLNET_V_ANSWER_SENT, XDP_REDIRECT);
  const Parsed result = ParseFrame(run.frame);
  EXPECT_TRUE(result.check_ok);
  EXPECT_TRUE(result.ip_checksum_ok);
  EXPECT_EQ(result.frame.type, MLNET_T_RESULT);
  EXPECT_EQ(result.frame.child, MLNET_CHILD_ALL);
  EXPECT_EQ(result.frame.words, answer.words);
  EXPECT_EQ(result.frame.exps[4], 99);
  EXPECT_EQ(result.frame.bitmap, 0b111u);
  EXPECT_EQ(result.frame.saddr, AggregatorIp());
  EXPECT_EQ(result.frame.daddr, GroupIp());
  EXPECT_EQ(result.frame.dst_mac, kGroupMac);
  const mlnet_cell cell = host_->Cell(kJob, 0, 1, 0);
  EXPECT_EQ(cell.published, MLNET_STAMP(1, 1)) << "the rank of this host has it too";
  EXPECT_EQ(std::vector<uint64_t>(cell.w, cell.w + 176), answer.words);
  EXPECT_EQ(host_->ServerCell(kJob, 0, 1, 0).bitmap, MLNET_STAMP(1, 1)) << "acknowledged";
  EXPECT_EQ(host_->Stats(kJob).results, 1u);

  const RunResult again = host_->Run(Push(1, 1));
  Expect(again, MLNET_V_RESEND_RESULT, XDP_TX);
  EXPECT_TRUE(ParseFrame(again.frame).check_ok);
  EXPECT_EQ(ParseFrame(again.frame).frame.words, answer.words);
  EXPECT_EQ(ParseFrame(again.frame).frame.weight, 3);
}

TEST_F(ServerTest, without_multicast_each_host_gets_a_copy) {
  host_->SetJob(Root(kForever, 0));
  Fill(0);
  const RunResult run = host_->Run(Answer(0));
  Expect(run, MLNET_V_ANSWER_SENT, XDP_REDIRECT);
  for (uint8_t c : {0, 1}) {
    const Parsed copy = ParseFrame(host_->RunEgress(run.meta, run.frame).frame);
    EXPECT_EQ(copy.frame.daddr, WorkerIp(c));
    EXPECT_EQ(copy.frame.saddr, AggregatorIp());
    EXPECT_EQ(copy.frame.words, Answer(0).words);
    EXPECT_TRUE(copy.check_ok);
  }
}

TEST_F(ServerTest, where_all_ranks_are_on_the_host_the_answer_ends_in_their_inbox) {
  JobSpec spec = Root(kForever);
  spec.child_addr = {AggregatorIp()};
  spec.local_children = {0};
  host_->SetJob(spec);
  Frame only = Push(2, 0);
  only.child = 0;
  Expect(host_->Run(only), MLNET_V_SUM_TO_SERVER, XDP_DROP);
  Expect(host_->Run(Answer(0)), MLNET_V_DELIVERED, XDP_DROP);
  EXPECT_EQ(host_->Cell(kJob, 0, 0, 0).published, MLNET_STAMP(1, 0));
  Expect(host_->Run(only), MLNET_V_DROP_RESULT_HERE, XDP_DROP);
}

TEST_F(ServerTest, equal_pulls_are_one_header_only_request) {
  for (uint8_t c : {0, 2}) Expect(host_->Run(Pull(c, 0)), c == 0 ? MLNET_V_SUM_FIRST : MLNET_V_SUM_ADD, XDP_DROP);
  Expect(host_->Run(Pull(1, 0)), MLNET_V_SUM_TO_SERVER, XDP_DROP);
  const mlnet_cell request = host_->ServerCell(kJob, 0, 0, 0);
  EXPECT_EQ(request.published, MLNET_STAMP(1, 0));
  EXPECT_EQ(request.words, 176) << "what is asked for";
  EXPECT_EQ(request.flags, MLNET_F_SERVER | MLNET_F_NO_DATA | MLNET_F_NO_PAYLOAD);
  EXPECT_EQ(request.weight, 0);
  const RunResult run = host_->Run(Answer(0));
  Expect(run, MLNET_V_ANSWER_SENT, XDP_REDIRECT);
  EXPECT_EQ(ParseFrame(run.frame).frame.words, Answer(0).words);
}

TEST_F(ServerTest, an_answer_may_be_header_only_where_there_is_nothing_to_read) {
  Fill(0);
  Frame answer = Answer(0);
  answer.HeaderOnly(176);
  Expect(host_->Run(answer), MLNET_V_DROP_MALFORMED, XDP_DROP);
  answer.flags |= MLNET_F_NO_DATA;
  const RunResult run = host_->Run(answer);
  Expect(run, MLNET_V_ANSWER_SENT, XDP_REDIRECT);
  const Parsed result = ParseFrame(run.frame);
  EXPECT_TRUE(result.check_ok);
  EXPECT_TRUE(result.frame.words.empty());
  EXPECT_EQ(result.frame.exps[4], 99) << "exponents travel all the same";
  EXPECT_EQ(host_->Cell(kJob, 0, 0, 0).flags & MLNET_F_NO_DATA, MLNET_F_NO_DATA);
  const RunResult again = host_->Run(Push(0, 0));
  Expect(again, MLNET_V_RESEND_RESULT, XDP_TX);
  const Parsed copy = ParseFrame(again.frame);
  EXPECT_TRUE(copy.check_ok);
  EXPECT_EQ(copy.frame.flags, MLNET_F_SERVER | MLNET_F_NO_DATA);
  EXPECT_EQ(copy.frame.words, std::vector<uint64_t>(176)) << "padding, not what was summed";
}

TEST_F(ServerTest, a_retry_is_held_and_reminds_the_server_but_not_at_once) {
  Fill(0);
  const RunResult early = host_->Run(Push(0, 0));
  Expect(early, MLNET_V_HELD, XDP_TX);
  EXPECT_EQ(ParseFrame(early.frame).frame.bitmap, 0u) << "no child is missing";
  EXPECT_TRUE(host_->TakeServerNotices(kJob).empty());
  host_->SetJob(Root(1));
  const RunResult late = host_->Run(Push(0, 0));
  Expect(late, MLNET_V_SERVER_REMINDED, XDP_TX);
  const Parsed held = ParseFrame(late.frame);
  EXPECT_EQ(held.frame.type, MLNET_T_HELD);
  EXPECT_EQ(held.frame.bitmap, 0u);
  EXPECT_EQ(held.frame.child, 0);
  EXPECT_TRUE(held.check_ok);
  const auto notices = host_->TakeServerNotices(kJob);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].type, MLNET_T_CONTRIB);
  EXPECT_EQ(notices[0].seq, 0u);
}

TEST_F(ServerTest, an_answer_counts_once_and_only_for_a_sum_that_was_given) {
  for (uint8_t c : {0, 2}) host_->Run(Push(c, 0));
  Expect(host_->Run(Answer(0)), MLNET_V_DROP_ANSWER_EARLY, XDP_DROP);
  Expect(host_->Run(Answer(1)), MLNET_V_DROP_ANSWER_OLD, XDP_DROP);
  host_->Run(Push(1, 0));
  Frame other = Answer(0);
  other.fingerprint++;
  Expect(host_->Run(other), MLNET_V_DROP_ANSWER_EARLY, XDP_DROP);
  Expect(host_->Run(Answer(0)), MLNET_V_ANSWER_SENT, XDP_REDIRECT);
  Frame second = Answer(0);
  second.Words(std::vector<uint64_t>(176, 5));
  Expect(host_->Run(second), MLNET_V_DROP_ANSWER_OLD, XDP_DROP);
  EXPECT_EQ(ParseFrame(host_->Run(Push(0, 0)).frame).frame.words, Answer(0).words);
  EXPECT_EQ(host_->Cell(kJob, 0, 0, 0).w[9], Answer(0).words[9]);
}

TEST_F(ServerTest, a_set_waits_for_its_answer_before_it_is_claimed_again) {
  Fill(0);
  EXPECT_EQ(Set(0).state, MLNET_SET_COMPLETE);
  Expect(host_->Run(Push(0, 2 * kSlots)), MLNET_V_BUSY, XDP_TX);
  host_->Run(Answer(0));
  EXPECT_EQ(Set(0).state, MLNET_SET_RESULT);
  Fill(kSlots);  // sending it proves that the result of 0 was consumed
  Expect(host_->Run(Push(0, 2 * kSlots)), MLNET_V_SUM_FIRST, XDP_DROP);
  Expect(host_->Run(Answer(0)), MLNET_V_DROP_ANSWER_OLD, XDP_DROP);
}

TEST_F(ServerTest, a_completing_packet_without_room_is_asked_for_again) {
  for (uint8_t c : {0, 2}) host_->Run(Push(c, 0));
  Expect(host_->Run(Pull(1, 0)), MLNET_V_SUM_COMPLETE_UNSENT, XDP_TX);
  Expect(host_->Run(Answer(0)), MLNET_V_DROP_ANSWER_EARLY, XDP_DROP);
  Expect(host_->Run(Push(0, 0)), MLNET_V_SUM_TO_SERVER_LATE, XDP_DROP);
  const mlnet_cell cell = host_->ServerCell(kJob, 0, 0, 0);
  EXPECT_EQ(cell.published, MLNET_STAMP(1, 0));
  EXPECT_EQ(cell.weight, 2);
  EXPECT_EQ(cell.w[9], Payload(0, 11)[9] + Payload(2, 11)[9]);
}

TEST_F(ServerTest, sums_without_the_flag_are_reflected) {
  Frame plain;
  RunResult run;
  for (uint8_t c : {2, 0, 1}) {
    plain = Push(c, 0);
    plain.flags = 0;
    run = host_->Run(plain);
  }
  Expect(run, MLNET_V_SUM_COMPLETE_TX, XDP_TX);
  EXPECT_EQ(ParseFrame(run.frame).frame.words, SumOfThree(0));
  EXPECT_EQ(host_->ServerCell(kJob, 0, 0, 0).published, 0u);
  Expect(host_->Run(Answer(0)), MLNET_V_DROP_ANSWER_EARLY, XDP_DROP);
}

TEST_F(ServerTest, nobody_else_may_answer) {
  Fill(0);
  Frame from_afar = Answer(0);
  from_afar.saddr = WorkerIp(0);
  Expect(host_->Run(from_afar), MLNET_V_DROP_NOT_PARENT, XDP_DROP);
  Frame by_the_nic = Answer(0);
  by_the_nic.daddr = AggregatorIp();
  Expect(host_->Run(by_the_nic), MLNET_V_DROP_NOT_PARENT, XDP_DROP);
  Bytes damaged = Answer(0).Build();
  damaged[300] ^= 1;
  Expect(host_->Run(damaged), MLNET_V_DROP_CORRUPT, XDP_DROP);
  JobSpec reflecting = Root(kForever);
  reflecting.flags = MLNET_NODE_AGGREGATE | MLNET_NODE_DELIVER;
  host_->SetJob(reflecting);
  Expect(host_->Run(Answer(0)), MLNET_V_DROP_NOT_PARENT, XDP_DROP);
  EXPECT_EQ(Set(0).state, MLNET_SET_COMPLETE);
}

}  // namespace
}  // namespace mlnet::test
