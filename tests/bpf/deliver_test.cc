// SPDX-License-Identifier: Apache-2.0
// Stage 6: results into the inbox, replies into the ring of the rank they are for (rule 5).
#include "bpf/fixture.h"

namespace mlnet::test {
namespace {

class DeliverTest : public AggregatorTest {
 protected:
  void SetUp() override {
    host_ = BpfHost::Create();
    ASSERT_NE(host_, nullptr);
    JobSpec spec = Job(MLNET_NODE_DELIVER);
    spec.local_children = {1, 2};
    host_->SetJob(spec);
  }

  static Frame Result(uint64_t seq, size_t blocks = 11) {
    Frame f = Contribution(0, seq, blocks);
    f.child = MLNET_CHILD_ALL;
    f.type = MLNET_T_RESULT;
    f.saddr = AggregatorIp();
    f.daddr = GroupIp();
    f.weight = 3;
    f.bitmap = 0b111;
    f.exps[0] = 130;
    f.exps[21] = 7;
    return f;
  }
};

TEST_F(DeliverTest, result_lands_in_its_cell_and_is_published_whole) {
  const Frame f = Result(kSlots + 2);
  Expect(host_->Run(f), MLNET_V_DELIVERED, XDP_DROP);
  const mlnet_cell cell = host_->Cell(kJob, 0, 2, 1);
  EXPECT_EQ(cell.published, MLNET_STAMP(1, kSlots + 2));
  EXPECT_EQ(cell.words, 176);
  EXPECT_EQ(cell.weight, 3);
  EXPECT_EQ(cell.bitmap, 0b111u);
  EXPECT_EQ(cell.fingerprint, f.fingerprint);
  EXPECT_EQ(cell.exps[0], 130);
  EXPECT_EQ(cell.exps[21], 7);
  EXPECT_EQ(std::vector<uint64_t>(cell.w, cell.w + 176), f.words);
}

TEST_F(DeliverTest, results_of_every_size_are_published_whole) {
  for (size_t blocks = 0; blocks <= MLNET_BLOCKS_MAX; ++blocks) {
    Frame f = Result(2 * blocks * kSlots);
    f.Words(Payload(0, blocks, blocks));
    Expect(host_->Run(f), MLNET_V_DELIVERED, XDP_DROP);
    const mlnet_cell cell = host_->Cell(kJob, 0, 0, 0);
    EXPECT_EQ(cell.words, blocks * MLNET_BLOCK_WORDS);
    EXPECT_EQ(std::vector<uint64_t>(cell.w, cell.w + cell.words), f.words) << blocks << " blocks";
  }
}

TEST_F(DeliverTest, a_cell_says_whether_a_queue_marked_the_result_or_what_it_is_made_of) {
  Frame f = Result(0);
  f.tos = 40 << 2 | 2;
  host_->Run(f);
  EXPECT_EQ(host_->Cell(kJob, 0, 0, 0).flags & MLNET_F_CE, 0);
  f.seq = 1;
  f.tos = 40 << 2 | 3;
  host_->Run(f);
  EXPECT_EQ(host_->Cell(kJob, 0, 1, 0).flags & MLNET_F_CE, MLNET_F_CE);
  f.seq = 2;
  f.tos = 0;
  f.flags |= MLNET_F_CE;
  host_->Run(f);
  EXPECT_EQ(host_->Cell(kJob, 0, 2, 0).flags & MLNET_F_CE, MLNET_F_CE);
}

TEST_F(DeliverTest, a_cell_is_written_only_by_a_higher_stamp) {
  host_->Run(Result(2 * kSlots));
  Frame old = Result(0);
  Expect(host_->Run(old), MLNET_V_DROP_RESULT_OLD, XDP_DROP);
  Frame equal = Result(2 * kSlots);
  equal.Words(std::vector<uint64_t>(176, 5));
  Expect(host_->Run(equal), MLNET_V_DROP_RESULT_OLD, XDP_DROP);
  EXPECT_EQ(host_->Cell(kJob, 0, 0, 0).w[9], Result(2 * kSlots).words[9]);
  Expect(host_->Run(Result(4 * kSlots)), MLNET_V_DELIVERED, XDP_DROP);
  EXPECT_EQ(host_->Cell(kJob, 0, 0, 0).published, MLNET_STAMP(1, 4 * kSlots));
}

TEST_F(DeliverTest, damaged_result_is_not_published) {
  Bytes damaged = Result(0).Build();
  damaged[700] ^= 0x10;
  Expect(host_->Run(damaged), MLNET_V_DROP_CORRUPT, XDP_DROP);
  EXPECT_EQ(host_->Cell(kJob, 0, 0, 0).published, 0u);
  EXPECT_EQ(host_->Cell(kJob, 0, 0, 0).claimed, 0u);
}

TEST_F(DeliverTest, only_the_parent_is_heard) {
  Frame forged = Result(0);
  forged.saddr = WorkerIp(0);
  Expect(host_->Run(forged), MLNET_V_DROP_NOT_PARENT, XDP_DROP);
  EXPECT_EQ(host_->Cell(kJob, 0, 0, 0).published, 0u);
}

TEST_F(DeliverTest, sleeping_ranks_are_woken_once_and_awake_ones_left_alone) {
  host_->Run(Result(0));
  EXPECT_TRUE(host_->TakeNotices(kJob, 0).empty());
  host_->SetAsleep(kJob, 0b10);  // local index 1
  host_->Run(Result(1));
  EXPECT_EQ(host_->Asleep(kJob), 0u);
  EXPECT_TRUE(host_->TakeNotices(kJob, 0).empty());
  const auto woken = host_->TakeNotices(kJob, 1);
  ASSERT_EQ(woken.size(), 1u);
  EXPECT_EQ(woken[0].type, 0) << "a wake-up";
  host_->Run(Result(2));
  EXPECT_TRUE(host_->TakeNotices(kJob, 1).empty());
}

TEST_F(DeliverTest, replies_reach_the_rank_they_answer) {
  for (uint8_t type : {MLNET_T_HELD, MLNET_T_BUSY, MLNET_T_RESEND, MLNET_T_MISMATCH}) {
    Frame f = Contribution(2, 3).HeaderOnly(176);
    f.type = type;
    f.saddr = AggregatorIp();
    f.daddr = WorkerIp(2);
    f.bitmap = 0b001;
    Expect(host_->Run(f), MLNET_V_NOTICE, XDP_DROP);
    const auto notices = host_->TakeNotices(kJob, 1);  // child 2 is local 1
    ASSERT_EQ(notices.size(), 1u);
    EXPECT_EQ(notices[0].type, type);
    EXPECT_EQ(notices[0].seq, 3u);
    EXPECT_EQ(notices[0].bitmap, 0b001u);
    EXPECT_EQ(notices[0].child, 2);
    EXPECT_EQ(notices[0].epoch, 1);
    EXPECT_TRUE(host_->TakeNotices(kJob, 0).empty());
  }
}

TEST_F(DeliverTest, reply_for_a_rank_elsewhere_is_dropped) {
  Frame f = Contribution(0, 3).HeaderOnly(176);
  f.type = MLNET_T_HELD;
  f.saddr = AggregatorIp();
  Expect(host_->Run(f), MLNET_V_DROP_NOT_MEMBER, XDP_DROP);
}

TEST_F(DeliverTest, full_ring_loses_the_notice_and_says_so) {
  Frame f = Contribution(1, 3).HeaderOnly(176);
  f.type = MLNET_T_HELD;
  f.saddr = AggregatorIp();
  std::optional<mlnet_verdict> last;
  for (int i = 0; i < 4000 && last != MLNET_V_NOTICE_LOST; ++i) last = host_->Run(f).verdict;
  EXPECT_EQ(last, MLNET_V_NOTICE_LOST);
}

TEST_F(DeliverTest, contribution_at_a_host_that_does_not_aggregate_is_dropped) {
  Expect(host_->Run(Contribution(0, 0)), MLNET_V_DROP_UNKNOWN_JOB, XDP_DROP);
}

TEST_F(DeliverTest, multicast_ping_is_reported_to_the_daemon) {
  Frame ping = Result(99, 0);
  ping.HeaderOnly(0);
  ping.type = MLNET_T_PING;
  Expect(host_->Run(ping), MLNET_V_PING_SEEN, XDP_DROP);
  const auto events = host_->TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].event, MLNET_EV_PING_SEEN);
  EXPECT_EQ(events[0].a, 99u);
}

TEST_F(DeliverTest, an_answer_to_a_ping_is_counted_and_troubles_nobody) {
  Frame pong = Result(4711, 0);
  pong.HeaderOnly(0);
  pong.type = MLNET_T_PONG;
  Expect(host_->Run(pong), MLNET_V_PONG_SEEN, XDP_DROP);
  EXPECT_TRUE(host_->TakeEvents().empty());
  pong.saddr = Ip("192.0.2.77");
  Expect(host_->Run(pong), MLNET_V_DROP_NOT_MEMBER, XDP_DROP);
}

TEST_F(DeliverTest, one_host_can_aggregate_and_deliver) {
  JobSpec spec = Job(MLNET_NODE_AGGREGATE | MLNET_NODE_DELIVER | MLNET_NODE_MULTICAST);
  spec.local_children = {1, 2};
  host_->SetJob(spec);
  Expect(host_->Run(Contribution(0, 0)), MLNET_V_SUM_FIRST, XDP_DROP);
  Expect(host_->Run(Result(0)), MLNET_V_DELIVERED, XDP_DROP);
}

}  // namespace
}  // namespace mlnet::test
