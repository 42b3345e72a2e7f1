// SPDX-License-Identifier: Apache-2.0
// One rank's core: what it starts, when, and in which pieces.
#include "schedule/core.h"

#include <gtest/gtest.h>

namespace mlnet::schedule {
namespace {

// A level for each of the priorities 0..7.
ClassMap EachItsOwn() {
  ClassMap map{.num_levels = kLevelsMax, .last_priority = {}};
  for (uint32_t i = 0; i < kLevelsMax; ++i) map.last_priority[i] = i;
  return map;
}

class CoreTest : public ::testing::Test {
 protected:
  void Make(const Policy& policy) {
    core_ = std::make_unique<Core>(CoreOptions{.policy = policy}, [this](const Chunk& c) { started_.push_back(c); });
  }
  TaskId Add(uint64_t bytes, uint32_t priority = 0, TaskId follows = kNoTask) {
    return core_->Enqueue({.bytes = bytes, .priority = priority, .align_bytes = 4, .tag = bytes, .follows = follows});
  }
  // The chunks started since the last call, as task * 100 + index.
  std::vector<uint64_t> Started() {
    std::vector<uint64_t> all;
    for (; num_told_ < started_.size(); ++num_told_) all.push_back(started_[num_told_].task * 100 + started_[num_told_].index);
    return all;
  }
  bool Finish(uint64_t which) {
    for (const Chunk& c : started_) {
      if (c.task * 100 + c.index == which) return core_->NotifyFinish(c);
    }
    ADD_FAILURE() << which << " has not started";
    return false;
  }

  std::unique_ptr<Core> core_;
  std::vector<Chunk> started_;
  size_t num_told_ = 0;
};

using Whats = std::vector<uint64_t>;

TEST_F(CoreTest, off_a_tensor_starts_whole_and_at_once) {
  Make({});
  const TaskId a = Add(1000, 5), b = Add(10, 0);
  EXPECT_EQ(Started(), Whats{});
  core_->NotifyReady(a);
  EXPECT_EQ(Started(), Whats{0});
  core_->NotifyReady(b);
  EXPECT_EQ(Started(), Whats{100});
  EXPECT_EQ(started_[0].bytes, 1000u);
  EXPECT_EQ(started_[0].count, 1u);
  EXPECT_EQ(started_[0].tag, 1000u);
  EXPECT_EQ(started_[0].traffic_class, 7u);
  EXPECT_TRUE(Finish(100));
  EXPECT_EQ(core_->num_open(), 1u);
  EXPECT_TRUE(Finish(0));
  EXPECT_EQ(core_->num_open(), 0u);
}

TEST_F(CoreTest, chunks_are_even_whole_blocks_that_cover_the_tensor) {
  for (const uint64_t bytes : {1, 4, 99, 100, 101, 400, 401, 12345}) {
    for (const uint64_t partition : {1, 4, 50, 100, 400}) {
      SCOPED_TRACE(std::to_string(bytes) + " in " + std::to_string(partition));
      started_.clear();
      Make({.partition_bytes = partition});
      core_->NotifyReady(Add(bytes));
      uint64_t end = 0, least = bytes, most = 0;
      for (size_t i = 0; i < started_.size(); ++i) {
        const Chunk& c = started_[i];
        ASSERT_EQ(c.index, i);
        ASSERT_EQ(c.count, started_.size());
        ASSERT_EQ(c.offset, end);
        ASSERT_EQ(c.offset % 4, 0u);
        ASSERT_LE(c.bytes, std::max<uint64_t>(partition, 4));
        ASSERT_GT(c.bytes, 0u);
        end += c.bytes;
        least = std::min(least, c.bytes);
        most = std::max(most, c.bytes);
      }
      ASSERT_EQ(end, bytes);
      ASSERT_LT(most - least, 8u);  // a block, and the last one may be short
    }
  }
}

TEST_F(CoreTest, an_empty_tensor_is_a_collective_too) {
  Make(ByteSchedulerPolicy({}));
  core_->NotifyReady(Add(0));
  EXPECT_EQ(Started(), Whats{0});
  EXPECT_TRUE(Finish(0));
}

TEST_F(CoreTest, p3_cuts_slices_of_50000_parameters_and_keeps_few_under_way) {
  Make(P3Policy({}, 4, 300000));
  core_->NotifyReady(Add(700000));
  EXPECT_EQ(Started(), (Whats{0, 1}));
  EXPECT_EQ(started_[0].count, 4u);
  EXPECT_EQ(started_[0].bytes, 175000u);
  EXPECT_FALSE(Finish(0));
  EXPECT_EQ(Started(), Whats{2});
}

TEST_F(CoreTest, credit_is_tested_before_a_chunk_and_may_be_overdrawn_by_one) {
  Make({.partition_bytes = 100, .credit_bytes = 250});
  core_->NotifyReady(Add(600));
  EXPECT_EQ(Started(), (Whats{0, 1, 2}));
  EXPECT_EQ(core_->in_flight_bytes(0), 300u);
  Finish(1);  // out of order
  EXPECT_EQ(Started(), (Whats{3}));
  Finish(0);
  EXPECT_EQ(Started(), (Whats{4}));
}

TEST_F(CoreTest, the_urgent_overtakes_at_the_next_border_and_begins_without_credit) {
  Make({.partition_bytes = 100, .classes = EachItsOwn(), .credit_bytes = 200});
  const TaskId backlog = Add(1000, 6), urgent = Add(300, 1), most = Add(100, 0);
  core_->NotifyReady(backlog);
  EXPECT_EQ(Started(), (Whats{0, 1}));
  core_->NotifyReady(urgent);
  EXPECT_EQ(Started(), Whats{100});  // one, then it needs credit
  EXPECT_EQ(started_.back().level, 1u);
  EXPECT_EQ(started_.back().traffic_class, 6u);
  core_->NotifyReady(most);
  EXPECT_EQ(Started(), Whats{200});
  Finish(0);
  Finish(1);
  EXPECT_EQ(Started(), Whats{});
  Finish(200);
  EXPECT_EQ(Started(), Whats{101});
  Finish(100);
  EXPECT_EQ(Started(), Whats{102});
  Finish(101);
  EXPECT_EQ(Started(), Whats{2});
  EXPECT_TRUE(Finish(102));
  EXPECT_EQ(Started(), Whats{3});
}

TEST_F(CoreTest, the_less_urgent_does_not_begin_without_credit_while_the_urgent_is_under_way) {
  Make({.partition_bytes = 100, .classes = EachItsOwn(), .credit_bytes = 100});
  const TaskId urgent = Add(200, 1), other = Add(200, 2);
  core_->NotifyReady(urgent);
  core_->NotifyReady(other);
  EXPECT_EQ(Started(), Whats{0});
  Finish(0);
  EXPECT_EQ(Started(), Whats{1});
  Finish(1);
  EXPECT_EQ(Started(), Whats{100});
}

TEST_F(CoreTest, a_level_whose_window_is_full_lets_the_next_one_go) {
  Policy policy{.partition_bytes = 100, .classes = EachItsOwn()};
  policy.window_bytes[0] = 200;
  policy.window_bytes[1] = 1;
  Make(policy);
  const TaskId a = Add(1000, 0), b = Add(1000, 1);
  core_->NotifyReady(a);
  core_->NotifyReady(b);
  EXPECT_EQ(Started(), (Whats{0, 1, 100}));
  Finish(100);
  EXPECT_EQ(Started(), (Whats{101}));
  Finish(0);
  EXPECT_EQ(Started(), (Whats{2}));
}

TEST_F(CoreTest, in_a_class_the_order_is_that_of_enqueue_whatever_is_ready_or_urgent) {
  ClassMap map{.num_levels = 2, .last_priority = {9, UINT32_MAX}};
  Make({.partition_bytes = 100, .classes = map});
  const TaskId a = Add(200, 9), b = Add(100, 0), c = Add(100, 50), d = Add(100, 3);
  core_->NotifyReady(d);
  core_->NotifyReady(b);
  EXPECT_EQ(Started(), Whats{});
  core_->NotifyReady(c);  // another class does not wait
  EXPECT_EQ(Started(), Whats{200});
  core_->NotifyReady(a);
  EXPECT_EQ(Started(), (Whats{0, 1, 100, 300}));
}

TEST_F(CoreTest, immediate_a_chunk_follows_its_own_and_else_the_whole_task) {
  for (const bool is_immediate : {true, false}) {
    SCOPED_TRACE(is_immediate);
    started_.clear();
    num_told_ = 0;
    Make({.partition_bytes = 100, .classes = EachItsOwn(), .is_immediate = is_immediate});
    const TaskId push = Add(300, 0);
    Add(300, 1, push);
    core_->NotifyReady(push);
    EXPECT_EQ(Started(), (Whats{0, 1, 2}));
    Finish(1);
    EXPECT_EQ(Started(), Whats{});  // not before the first, or the order would be another one on each rank
    EXPECT_FALSE(Finish(0));
    EXPECT_EQ(Started(), is_immediate ? (Whats{100, 101}) : Whats{});
    EXPECT_TRUE(Finish(2));
    EXPECT_EQ(Started(), is_immediate ? Whats{102} : (Whats{100, 101, 102}));
    EXPECT_FALSE(Finish(100));
    EXPECT_FALSE(Finish(101));
    EXPECT_TRUE(Finish(102));
  }
}

TEST_F(CoreTest, a_follower_that_comes_after_its_task_is_over_starts_at_once) {
  Make({.partition_bytes = 100, .classes = EachItsOwn()});
  const TaskId push = Add(200, 0);
  core_->NotifyReady(push);
  Finish(0);
  Add(200, 1, push);
  EXPECT_EQ(Started(), (Whats{0, 1, 100}));
  Finish(1);
  EXPECT_EQ(Started(), Whats{101});
  Add(100, 2, push);
  EXPECT_EQ(Started(), Whats{200});
}

TEST_F(CoreTest, a_follower_that_is_cut_otherwise_waits_for_the_whole_task) {
  Make({.partition_bytes = 100, .classes = EachItsOwn()});
  const TaskId push = Add(200, 0);
  Add(400, 1, push);
  core_->NotifyReady(push);
  Finish(0);
  EXPECT_EQ(Started(), (Whats{0, 1}));
  Finish(1);
  EXPECT_EQ(Started(), (Whats{100, 101, 102, 103}));
}

TEST_F(CoreTest, a_new_policy_cuts_later_tasks_only_and_gives_its_credit_at_once) {
  Make({.partition_bytes = 100, .credit_bytes = 1});
  const TaskId a = Add(400), b = Add(400);
  core_->NotifyReady(a);
  core_->NotifyReady(b);
  EXPECT_EQ(Started(), Whats{0});
  core_->SetPolicy({.partition_bytes = 200, .credit_bytes = 300});
  EXPECT_EQ(Started(), (Whats{1, 2}));
  const TaskId c = Add(400);
  core_->NotifyReady(c);
  core_->SetPolicy({});
  EXPECT_EQ(Started(), (Whats{3, 100, 101, 102, 103, 200, 201}));
  EXPECT_EQ(started_.back().count, 2u);
}

TEST_F(CoreTest, start_may_finish_its_chunk_and_enqueue_more) {
  uint64_t num_chunks = 0;
  int num_whole = 0;
  std::unique_ptr<Core> core;
  const auto add = [&] { core->NotifyReady(core->Enqueue({.bytes = 400000, .align_bytes = 4})); };
  core = std::make_unique<Core>(CoreOptions{.policy = {.partition_bytes = 4, .credit_bytes = 1}}, [&](const Chunk& c) {
    ++num_chunks;  // so many of them must not be so many calls within calls
    if (core->NotifyFinish(c) && ++num_whole < 3) add();
  });
  add();
  EXPECT_EQ(num_chunks, 300000u);
  EXPECT_EQ(num_whole, 3);
  EXPECT_EQ(core->num_open(), 0u);
}

}  // namespace
}  // namespace mlnet::schedule
