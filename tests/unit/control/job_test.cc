// SPDX-License-Identifier: Apache-2.0
// The life of a job: every transition, and what each rank is told.
#include "control/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/plan.h"

namespace mlnet::control {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kNow = 1'000'000;

JobView NewJob() {
  JobView view;
  view.job.name = "demo";
  view.job.incarnation = 1;
  return view;
}

Result<void> JoinAs(JobView& view, int rank, int world_size, uint64_t now_ms = kNow) {
  return Join(view, {rank, world_size, "w" + std::to_string(rank + 1), 100 + rank}, now_ms);
}

JobView ReadyJob(int world_size) {
  JobView view = NewJob();
  for (int rank = 0; rank < world_size; ++rank) EXPECT_TRUE(JoinAs(view, rank, world_size));
  view.job.state = kReady;
  view.job.job_id = 5;
  return view;
}

TEST(job, is_full_when_the_last_rank_joins_in_any_order) {
  JobView view = NewJob();
  ASSERT_TRUE(JoinAs(view, 2, 3));
  ASSERT_TRUE(JoinAs(view, 0, 3));
  EXPECT_FALSE(IsFull(view));
  ASSERT_TRUE(JoinAs(view, 1, 3));
  EXPECT_TRUE(IsFull(view));
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(view.members[static_cast<size_t>(rank)].rank, rank);
}

TEST(job, rank_out_of_range_is_refused_and_disturbs_nobody) {
  JobView view = NewJob();
  ASSERT_TRUE(JoinAs(view, 0, 2));
  for (const auto& [rank, size] : {std::pair{2, 2}, {-1, 2}, {0, 0}, {0, 257}}) {
    const auto joined = JoinAs(view, rank, size);
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(view.job.state, kJoining);
}

TEST(job, rank_taken_twice_is_refused_by_name_and_disturbs_nobody) {
  JobView view = NewJob();
  ASSERT_TRUE(JoinAs(view, 1, 2));
  const auto again = JoinAs(view, 1, 2);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kConflict);
  EXPECT_THAT(again.error().message, HasSubstr("rank 1 (host w2, pid 101)"));
  EXPECT_EQ(view.job.state, kJoining);
  EXPECT_EQ(view.members.size(), 1u);
}

TEST(job, other_world_size_fails_the_job_for_everybody) {
  JobView view = NewJob();
  ASSERT_TRUE(JoinAs(view, 0, 4));
  const auto joined = JoinAs(view, 1, 3);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ErrorCode::kMismatch);
  EXPECT_EQ(view.job.state, kFailed);
  EXPECT_EQ(view.job.reason, joined.error().message);
  EXPECT_THAT(view.job.reason, HasSubstr("world_size 3"));
  EXPECT_THAT(view.job.reason, HasSubstr("said 4"));
}

TEST(job, late_rank_hears_of_a_contradiction_once_then_the_name_is_free) {
  JobView view = NewJob();
  ASSERT_TRUE(JoinAs(view, 0, 4));
  ASSERT_FALSE(JoinAs(view, 1, 3));
  const auto late = JoinAs(view, 2, 4, kNow + kLateJoinMs - 1);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kMismatch);
  ASSERT_TRUE(JoinAs(view, 0, 4, kNow + 1)) << "a rank that was told starts again";
  EXPECT_EQ(view.job.incarnation, 2u);
  EXPECT_EQ(view.members.size(), 1u);
}

TEST(job, deadline_names_the_missing_ranks_and_fails_all_that_wait) {
  JobView view = NewJob();
  ASSERT_TRUE(JoinAs(view, 0, 4));
  ASSERT_TRUE(JoinAs(view, 2, 4));
  JoinTimedOut(view, 0, 30000, kNow);
  EXPECT_EQ(view.job.state, kFailed);
  EXPECT_EQ(view.job.code, "E_TIMEOUT");
  EXPECT_THAT(view.job.reason, HasSubstr("waiting for ranks 1, 3 of job 'demo'"));
  EXPECT_EQ(view.job.ranks, (std::vector<int>{1, 3}));
  ASSERT_TRUE(JoinAs(view, 1, 4)) << "who comes after a deadline starts afresh";
  EXPECT_EQ(view.job.incarnation, 2u);
}

TEST(job, next_deadline_tells_how_the_previous_attempt_ended) {
  JobView view = NewJob();
  ASSERT_TRUE(JoinAs(view, 0, 4));
  ASSERT_FALSE(JoinAs(view, 1, 3));
  ASSERT_TRUE(JoinAs(view, 0, 4));
  JoinTimedOut(view, 0, 10, kNow);
  EXPECT_THAT(view.job.reason, HasSubstr("previous attempt ended with: rank 1"));
}

TEST(job, deadline_while_preparing_names_the_hosts) {
  JobView view = ReadyJob(2);
  view.job.state = kPreparing;
  view.job.plan.ports = {{"a1", "eth0", "10.0.0.9", ""}, {"w1", "eth0", "10.0.0.1", ""}, {"w2", "eth0", "10.0.0.2", ""}};
  view.job.plan.trees = {{1, {{0, -1}, {1, 0}, {2, 0}}}};
  view.job.plan.host_of_rank = {"w1", "w2"};
  view.hosts = {{1, "w1", true, false}};
  JoinTimedOut(view, 0, 30, kNow);
  EXPECT_EQ(view.job.code, "E_TIMEOUT");
  EXPECT_THAT(view.job.reason, HasSubstr("waiting for: w2"));
}

TEST(job, process_that_dies_while_joining_frees_its_rank) {
  JobView view = NewJob();
  ASSERT_TRUE(JoinAs(view, 0, 2));
  ASSERT_TRUE(JoinAs(view, 1, 2));
  MemberGone(view, 0, false, kNow);
  EXPECT_FALSE(IsFull(view));
  EXPECT_TRUE(JoinAs(view, 0, 2));
  EXPECT_TRUE(IsFull(view));
}

TEST(job, process_that_dies_in_a_running_job_fails_it_by_name) {
  JobView view = ReadyJob(3);
  MemberGone(view, 1, false, kNow);
  EXPECT_EQ(view.job.state, kFailed);
  EXPECT_EQ(view.job.code, "E_RANK_LOST");
  EXPECT_THAT(view.job.reason, HasSubstr("rank 1 (host w2, pid 101)"));
  EXPECT_EQ(view.job.ranks, std::vector<int>{1});
}

TEST(job, closes_when_the_last_rank_leaves_and_can_be_joined_again) {
  JobView view = ReadyJob(2);
  MemberGone(view, 0, true, kNow);
  EXPECT_EQ(view.job.state, kReady);
  MemberGone(view, 1, true, kNow);
  EXPECT_EQ(view.job.state, kClosed);
  ASSERT_TRUE(JoinAs(view, 0, 5));
  EXPECT_EQ(view.job.incarnation, 2u);
  EXPECT_EQ(view.job.world_size, 5);
  EXPECT_EQ(view.job.job_id, 5) << "the id stays, the epoch will be a new one";
}

TEST(job, running_or_abandoned_name_refuses_new_ranks_until_it_is_left) {
  JobView view = ReadyJob(2);
  EXPECT_EQ(JoinAs(view, 0, 2).error().code, ErrorCode::kConflict);
  EXPECT_EQ(JoinAs(view, 0, 3).error().code, ErrorCode::kMismatch);
  EXPECT_EQ(view.job.state, kReady);
  MemberGone(view, 0, false, kNow);
  const auto joined = JoinAs(view, 0, 2);
  ASSERT_FALSE(joined);
  EXPECT_THAT(joined.error().message, HasSubstr("still connected: rank 1"));
  MemberGone(view, 1, true, kNow);
  EXPECT_TRUE(JoinAs(view, 0, 2));
}

TEST(job, first_failure_is_the_one_that_stays) {
  JobView view = ReadyJob(2);
  Fail(view, Error{ErrorCode::kTimeout, "first", ""}, {}, kNow);
  Fail(view, Error{ErrorCode::kSystem, "second", ""}, {}, kNow);
  EXPECT_EQ(view.job.reason, "first");
}

TEST(job, mismatch_waits_for_all_texts_but_not_for_ever) {
  JobView view = ReadyJob(2);
  EXPECT_FALSE(MismatchIsRipe(view, kNow));
  view.job.mismatch_ms = kNow;
  EXPECT_FALSE(MismatchIsRipe(view, kNow + kDescribeWaitMs - 1));
  EXPECT_TRUE(MismatchIsRipe(view, kNow + kDescribeWaitMs));
  view.members[0].collective = "all_reduce of 10 float32";
  EXPECT_FALSE(MismatchIsRipe(view, kNow));
  view.members[1].collective = "barrier";
  EXPECT_TRUE(MismatchIsRipe(view, kNow));
  const Error error = MismatchError(view);
  EXPECT_EQ(error.code, ErrorCode::kMismatch);
  EXPECT_THAT(error.message, HasSubstr("rank 0 all_reduce of 10 float32; rank 1 barrier"));
}

TEST(job, declared_job_keeps_its_shape_and_outlives_its_ranks) {
  JobView view = NewJob();
  view.job.declared = true;
  view.job.world_size = 2;
  view.job.spec.slots = 8;
  EXPECT_FALSE(IsForgotten(view));
  ASSERT_TRUE(JoinAs(view, 0, 2));
  MemberGone(view, 0, false, kNow);
  EXPECT_FALSE(IsForgotten(view));
  EXPECT_EQ(view.job.world_size, 2);
  ASSERT_FALSE(JoinAs(view, 0, 3));
  ASSERT_TRUE(JoinAs(view, 0, 2, kNow + kLateJoinMs));
  EXPECT_EQ(view.job.spec.slots, 8u);
}

TEST(job, undeclared_job_is_forgotten_when_nobody_waits) {
  JobView view = NewJob();
  ASSERT_TRUE(JoinAs(view, 0, 2));
  EXPECT_FALSE(IsForgotten(view));
  MemberGone(view, 0, false, kNow);
  EXPECT_TRUE(IsForgotten(view));
}

TEST(job, is_prepared_when_aggregator_and_all_worker_hosts_are) {
  JobView view = ReadyJob(2);
  view.job.plan.ports = {{"a1", "eth0", "10.0.0.9", ""}, {"w1", "eth0", "10.0.0.1", ""}, {"w2", "eth0", "10.0.0.2", ""}};
  view.job.plan.trees = {{1, {{0, -1}, {1, 0}, {2, 0}}}};
  view.job.plan.host_of_rank = {"w1", "w2"};
  view.hosts = {{1, "w1", true, false}, {1, "w2", true, false}};
  EXPECT_FALSE(AllHostsPrepared(view));
  view.hosts.push_back({1, "a1", false, false});
  EXPECT_FALSE(AllHostsPrepared(view));
  view.hosts.back().prepared = true;
  EXPECT_TRUE(AllHostsPrepared(view));
}

TEST(job, waits_for_its_server_where_it_was_created_with_one) {
  JobView view = NewJob();
  const auto refused = JoinAs(view, kServerRank, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("has no place for a server"));
  view.job.spec.root = "server";
  ASSERT_TRUE(JoinAs(view, 1, 2));
  ASSERT_TRUE(JoinAs(view, 0, 2));
  EXPECT_FALSE(IsFull(view));
  JobView late = view;
  JoinTimedOut(late, 1, 500, kNow);
  EXPECT_THAT(late.job.reason, HasSubstr("waiting for the server of job 'demo': rank 1 gave up"));
  ASSERT_TRUE(JoinAs(view, kServerRank, 2));
  EXPECT_TRUE(IsFull(view));
  const auto second = JoinAs(view, kServerRank, 2);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("already has the server (host w0"));
  view.job.state = kReady;
  MemberGone(view, kServerRank, /*orderly=*/false, kNow);
  EXPECT_EQ(view.job.state, kFailed);
  EXPECT_THAT(view.job.reason, HasSubstr("the server (host w0, pid 99) of job 'demo' exited"));
}

TEST(job, names_of_members) {
  EXPECT_EQ(NamesOf({3}), "rank 3");
  EXPECT_EQ(NamesOf({1, 3}), "ranks 1, 3");
  EXPECT_EQ(NamesOf({kServerRank}), "the server");
  EXPECT_EQ(NamesOf({kServerRank, 0, 2}), "the server and ranks 0, 2");
}

}  // namespace
}  // namespace mlnet::control
