// SPDX-License-Identifier: Apache-2.0
// A job of ranks 0 to 3 on w1 to w4 that fails and goes on with those who are left.
#include "control/shrink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/job.h"
#include "control/plan.h"

namespace mlnet::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

constexpr uint64_t kFailedMs = 1'000'000;

JobView FailedJob(int lost = 1) {
  JobView view;
  view.job.name = "demo";
  view.job.incarnation = 7;
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(Join(view, {rank, 4, "w" + std::to_string(rank + 1), 100 + rank, 1000, true, true}, kFailedMs));
  }
  view.job.state = kReady;
  view.job.job_id = 5;
  view.job.key = "00112233445566778899aabbccddeeff";
  MemberGone(view, lost, false, kFailedMs);
  EXPECT_EQ(view.job.state, kFailed);
  return view;
}

void AllGoOn(JobView& view) {
  for (int rank = 0; rank < static_cast<int>(view.members.size()); ++rank) {
    if (CheckGoesOn(view, rank)) GoOn(view, rank);
  }
}

TEST(shrink, opens_a_new_incarnation_when_all_candidates_have_asked) {
  JobView view = FailedJob();
  for (const int rank : {3, 0}) {
    ASSERT_TRUE(CheckGoesOn(view, rank));
    GoOn(view, rank);
    EXPECT_FALSE(CanShrink(view)) << rank;
  }
  GoOn(view, 2);
  ASSERT_TRUE(CanShrink(view));
  Shrink(view, kFailedMs + 50);
  EXPECT_EQ(view.job.incarnation, 8u);
  EXPECT_EQ(view.job.world_size, 3);
  EXPECT_TRUE(IsFull(view));
  EXPECT_EQ(view.job.job_id, 5) << "its next epoch is a new one of the same id";
  EXPECT_EQ(view.job.key, "") << "the next plan brings a new one";
  EXPECT_TRUE(view.hosts.empty());
  EXPECT_THAT(FormerRanks(view), ElementsAre(0, 2, 3));
  EXPECT_THAT(EarlierRanks(view, {}), Optional(ElementsAre(0, 2, 3)));
  EXPECT_THAT(EarlierRanks(view, {4, 5, 7, 9}), Optional(ElementsAre(4, 7, 9)));
  EXPECT_EQ(EarlierRanks(view, {4, 5, 7}), std::nullopt) << "of another job: there was no rank 3";
  view.members[1].former_rank = -1;
  EXPECT_EQ(EarlierRanks(view, {}), std::nullopt);
  view.members[1].former_rank = 2;
  EXPECT_THAT(view.job.shrunk.lost, ElementsAre(1));
  EXPECT_THAT(view.job.shrunk.why, HasSubstr("rank 1 (host w2, pid 101)"));
  ASSERT_EQ(view.members.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(view.members[static_cast<size_t>(rank)].rank, rank);
  EXPECT_EQ(view.members[1].host, "w3");
  EXPECT_EQ(view.members[1].pid, 102);
  EXPECT_EQ(view.members[1].uid, 1000u);
  EXPECT_TRUE(view.members[1].connected && view.members[1].pings && view.members[1].rings && !view.members[1].goes_on);
}

TEST(shrink, nobody_asks_and_nothing_happens) {
  JobView view = FailedJob();
  EXPECT_FALSE(CanShrink(view));
  for (int rank = 0; rank < 4; ++rank) MemberGone(view, rank, true, kFailedMs);
  EXPECT_FALSE(CanShrink(view)) << "nobody is left";
}

TEST(shrink, a_running_job_does_not_shrink) {
  JobView view = FailedJob();
  AllGoOn(view);
  view.job.state = kReady;
  EXPECT_FALSE(CanShrink(view));
}

TEST(shrink, who_dies_or_leaves_before_the_others_have_asked_is_not_waited_for) {
  JobView view = FailedJob();
  for (const int rank : {0, 2}) GoOn(view, rank);
  MemberGone(view, 2, false, kFailedMs);
  EXPECT_FALSE(CanShrink(view)) << "rank 3 has not asked";
  MemberGone(view, 3, true, kFailedMs);
  ASSERT_TRUE(CanShrink(view));
  Shrink(view, kFailedMs);
  EXPECT_THAT(FormerRanks(view), ElementsAre(0));
  EXPECT_THAT(view.job.shrunk.lost, ElementsAre(1, 2, 3));
  EXPECT_THAT(view.job.shrunk.why, HasSubstr("rank 2 (host w3, pid 102) is gone"));
  EXPECT_THAT(view.job.shrunk.why, HasSubstr("rank 3 (host w4, pid 103) left"));
}

TEST(shrink, who_does_not_ask_in_time_is_named_and_refused_before_and_after) {
  JobView view = FailedJob();
  for (const int rank : {0, 2}) GoOn(view, rank);
  GiveUpMissing(view, 1500);
  const auto refused = CheckGoesOn(view, 3);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_THAT(refused.error().message, HasSubstr("rank 3 (host w4, pid 103) did not ask to go on within 1500 ms"));
  ASSERT_TRUE(CanShrink(view));
  Shrink(view, kFailedMs);
  EXPECT_THAT(FormerRanks(view), ElementsAre(0, 2));
  EXPECT_THAT(view.job.shrunk.why, HasSubstr("within 1500 ms"));
  EXPECT_THAT(view.job.shrunk.why, Not(HasSubstr("is gone")));
  EXPECT_EQ(Successor(view, 7, 3), nullptr);
  EXPECT_EQ(Successor(view, 6, 2), nullptr) << "of another incarnation";
  ASSERT_NE(Successor(view, 7, 2), nullptr);
  EXPECT_EQ(Successor(view, 7, 2)->rank, 1);
  EXPECT_EQ(LeftBehind(view, 3).code, ErrorCode::kConflict);
  EXPECT_THAT(LeftBehind(view, 3).message, HasSubstr("rank 3 is too late: job 'demo' has gone on with 2 ranks"));
}

TEST(shrink, a_silent_rank_is_lost_although_it_is_connected) {
  JobView view = FailedJob();
  view.members[1].connected = true;
  view.job.ranks = {1, 3};
  for (const int rank : {1, 3}) EXPECT_FALSE(CheckGoesOn(view, rank)) << rank;
  AllGoOn(view);
  ASSERT_TRUE(CanShrink(view));
  Shrink(view, kFailedMs);
  EXPECT_THAT(FormerRanks(view), ElementsAre(0, 2));
  EXPECT_THAT(view.job.shrunk.lost_hosts, ElementsAre("w2", "w4"));
}

TEST(shrink, who_reports_a_timeout_is_not_lost) {
  JobView view = FailedJob();
  view.members[1].connected = true;
  view.job.code = "E_TIMEOUT";
  AllGoOn(view);
  ASSERT_TRUE(CanShrink(view));
  Shrink(view, kFailedMs);
  EXPECT_THAT(FormerRanks(view), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(view.job.shrunk.lost.empty());
  EXPECT_TRUE(view.job.shrunk.lost_hosts.empty());
}

TEST(shrink, one_more_is_lost_before_the_new_incarnation_is_ready) {
  JobView view = FailedJob();
  AllGoOn(view);
  Shrink(view, kFailedMs);
  view.job.state = kPreparing;
  MemberGone(view, 2, false, kFailedMs);  // it was 3
  EXPECT_EQ(view.job.state, kFailed);
  EXPECT_EQ(view.job.code, "E_RANK_LOST");
  AllGoOn(view);
  ASSERT_TRUE(CanShrink(view));
  Shrink(view, kFailedMs);
  EXPECT_EQ(view.job.incarnation, 9u);
  EXPECT_THAT(FormerRanks(view), ElementsAre(0, 1));
  EXPECT_THAT(view.job.shrunk.lost, ElementsAre(2));
  EXPECT_EQ(view.job.shrunk.world_size_full, 4);
  EXPECT_THAT(view.job.shrunk.lost_hosts, ElementsAre("w2", "w4"));
}

TEST(shrink, a_plan_that_fails_leaves_its_ranks_members) {
  JobView view = FailedJob();
  AllGoOn(view);
  Shrink(view, kFailedMs);
  Fail(view, Error{ErrorCode::kUnavailable, "no aggregator", ""}, {}, kFailedMs);
  EXPECT_TRUE(IsConnected(view));
  AllGoOn(view);
  EXPECT_TRUE(CanShrink(view)) << "they may try again";
}

TEST(shrink, servers_and_deleted_jobs_do_not) {
  JobView view = FailedJob();
  view.job.spec.root = "server";
  EXPECT_EQ(CheckGoesOn(view, 0).error().code, ErrorCode::kUnsupported);
  view = FailedJob();
  AllGoOn(view);
  view.job.deleted = true;
  EXPECT_FALSE(CheckGoesOn(view, 0));
  EXPECT_FALSE(CanShrink(view));
}

TEST(shrink, a_declared_job_has_all_its_ranks_again_when_it_is_joined_next) {
  JobView view = FailedJob();
  view.job.declared = true;
  AllGoOn(view);
  Shrink(view, kFailedMs);
  view.job.state = kReady;
  for (int rank = 0; rank < 3; ++rank) MemberGone(view, rank, true, kFailedMs);
  EXPECT_EQ(view.job.state, kClosed);
  ASSERT_TRUE(Join(view, {3, 4, "w4", 200}, kFailedMs));
  EXPECT_EQ(view.job.world_size, 4);
  EXPECT_EQ(view.job.shrunk.from, 0u);
}

}  // namespace
}  // namespace mlnet::control
