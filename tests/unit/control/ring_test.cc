// SPDX-License-Identifier: Apache-2.0
// What becomes of a job that loses a host: ranks 0 on w1, 1 on w2, summed on a1 and a2.
#include "control/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/job.h"
#include "control/liveness.h"

namespace mlnet::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kNow = 1'000'000;
const Error kGone{ErrorCode::kUnavailable, "host a1 is gone", "start it again"};

class RingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    view_.job.state = kReady;
    view_.job.name = "demo";
    view_.job.world_size = 2;
    view_.job.spec.lost_ms = 800;
    Plan& plan = view_.job.plan;
    for (const char* host : {"w1", "w2", "a1", "a2"}) plan.ports.push_back({host, "eth0", std::string("10.0.0.") + host[1] + (host[0] == 'a' ? "0" : ""), ""});
    plan.trees.push_back({1, {{2, -1}, {0, 0}, {1, 0}}});
    plan.trees.push_back({1, {{3, -1}, {0, 0}, {1, 0}}});
    plan.host_of_rank = {"w1", "w2"};
    for (int rank = 0; rank < 2; ++rank) {
      MemberRecord member;
      member.incarnation = 1;
      member.rank = rank;
      member.host = plan.host_of_rank[static_cast<size_t>(rank)];
      member.connected = member.pings = member.rings = true;
      view_.members.push_back(member);
    }
  }

  JobView view_;
};

TEST_F(RingTest, a_job_that_loses_a_host_which_only_sums_goes_on) {
  ASSERT_TRUE(CanLose(view_, "a1"));
  LoseHost(view_, "a1", kGone, "token", kNow);
  EXPECT_EQ(view_.job.state, kReady);
  EXPECT_TRUE(IsInRing(view_.job));
  EXPECT_EQ(view_.job.ring.why, "host a1 is gone");
  EXPECT_THAT(HostsNeeded(view_.job), ElementsAre("w1", "w2"));
  EXPECT_FALSE(NeedsHost(view_.job, "a1"));
  // The other one may go too, and changes nothing.
  LoseHost(view_, "a2", Error{ErrorCode::kUnavailable, "host a2 is gone", ""}, "other", kNow + 5);
  EXPECT_EQ(view_.job.ring.token, "token");
  EXPECT_EQ(view_.job.state, kReady);
}

TEST_F(RingTest, a_host_with_ranks_ends_the_job_before_and_in_the_ring) {
  JobView before = view_;
  EXPECT_FALSE(CanLose(before, "w2"));
  LoseHost(before, "w2", kGone, "token", kNow);
  EXPECT_EQ(before.job.state, kFailed);
  LoseHost(view_, "a1", kGone, "token", kNow);
  LoseHost(view_, "w2", Error{ErrorCode::kUnavailable, "host w2 is gone", ""}, "token", kNow);
  EXPECT_EQ(view_.job.state, kFailed);
  EXPECT_EQ(view_.job.reason, "host w2 is gone");
}

TEST_F(RingTest, what_forbids_the_ring_fails_the_job_with_the_loss) {
  const auto fails = [&](const std::function<void(JobView&)>& change) {
    JobView view = view_;
    change(view);
    LoseHost(view, "a1", kGone, "token", kNow);
    return view.job.state == kFailed && view.job.reason == kGone.message;
  };
  EXPECT_TRUE(fails([](JobView& v) { v.job.spec.require_mode = kKernelMode; }));
  EXPECT_TRUE(fails([](JobView& v) { v.members[1].rings = false; }));
  EXPECT_TRUE(fails([](JobView& v) { v.members[0].connected = false; })) << "it may hold a result that others miss";
  EXPECT_TRUE(fails([](JobView& v) { v.job.plan.server_host = "a1"; }));
  EXPECT_TRUE(fails([](JobView& v) { v.job.mismatch_ms = kNow; }));
  EXPECT_FALSE(fails([](JobView&) {}));
}

TEST_F(RingTest, a_silent_root_is_lost_when_all_hosts_of_ranks_say_so) {
  NoteSilentRoot(view_, "w1", "a1", kGone, "token", kNow);
  EXPECT_FALSE(IsInRing(view_.job)) << "w1 may be cut off itself";
  NoteSilentRoot(view_, "w1", "", {}, "", kNow);
  NoteSilentRoot(view_, "w2", "a1", kGone, "token", kNow);
  EXPECT_FALSE(IsInRing(view_.job)) << "w1 hears it again";
  NoteSilentRoot(view_, "w1", "a2", kGone, "token", kNow);
  EXPECT_FALSE(IsInRing(view_.job)) << "another one";
  NoteSilentRoot(view_, "w1", "a1", kGone, "token", kNow);
  EXPECT_TRUE(IsInRing(view_.job));
}

TEST_F(RingTest, ranks_hear_of_their_neighbours_when_all_listen_and_who_does_not_is_named) {
  LoseHost(view_, "a1", kGone, "token", kNow);
  view_.members[0].ring_port = 4001;
  EXPECT_FALSE(IsRingOpen(view_));
  EXPECT_FALSE(RingFailure(view_, kNow + kRingOpenMs - 1));
  const auto failure = RingFailure(view_, kNow + kRingOpenMs);
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->message, HasSubstr("host a1 is gone; rank 1 did not join the ring"));
  view_.members[1].ring_port = 4002;
  EXPECT_TRUE(IsRingOpen(view_));
  EXPECT_FALSE(RingFailure(view_, kNow + kRingOpenMs));
  const Json peers = RingPeersFor(view_, 1);
  EXPECT_EQ(peers["next"], (Json{{"rank", 0}, {"host", "w1"}, {"address", "10.0.0.1"}, {"port", 4001}}));
  EXPECT_EQ(peers["previous"], (Json{{"rank", 0}, {"host", "w1"}}));
}

TEST_F(RingTest, an_aggregator_that_hears_nobody_takes_itself_for_cut_off_and_one_that_hears_others_does_not) {
  constexpr uint64_t kMs = 1'000'000, kBegin = 1'000'000 * kMs;
  for (const uint64_t other_ms : {1'000ULL, 350ULL}) {
    Liveness liveness(1, kBegin);
    TreeSigns signs;
    signs.children = {{0, kBegin + other_ms * kMs}, {1, kBegin + 300 * kMs}};
    std::optional<Loss> loss;
    for (uint64_t ms = 0; ms <= 1'100 && !loss; ms += 50) loss = liveness.Look(view_, "a1", {{signs}, {}}, kBegin + ms * kMs);
    ASSERT_TRUE(loss);
    EXPECT_THAT(loss->ranks, ElementsAre(1));
    EXPECT_EQ(loss->is_alone, other_ms == 350);
  }
}

class RingStartTest : public RingTest {
 protected:
  void SetUp() override {
    RingTest::SetUp();
    view_.job.state = kPreparing;
    view_.job.planned_ms = kNow;
    for (const char* host : {"w1", "w2", "a1", "a2"}) view_.hosts.push_back({view_.job.incarnation, host, true, 0, false, ""});
  }
  void Set(const std::string& host, bool prepared, bool serving) {
    for (JobHostRecord& h : view_.hosts) {
      if (h.host == host) h.prepared = prepared, h.serving = serving;
    }
  }
};

TEST_F(RingStartTest, aggregators_that_are_late_are_named_and_only_after_their_time) {
  Set("a2", false, false);
  EXPECT_EQ(WhyStartInRing(view_, kNow + kServeMs - 1), "");
  EXPECT_EQ(WhyStartInRing(view_, kNow + kServeMs), "not ready to sum within 5000 ms: a2");
  Set("a2", true, true);
  EXPECT_EQ(WhyStartInRing(view_, kNow + kServeMs), "not ready to sum within 5000 ms: a1") << "it is prepared, but does not serve";
  Set("a1", true, true);
  EXPECT_EQ(WhyStartInRing(view_, kNow + kServeMs), "");
}

TEST_F(RingStartTest, a_host_of_ranks_that_is_late_is_waited_for) {
  Set("w2", false, false);
  EXPECT_EQ(WhyStartInRing(view_, kNow + kServeMs), "") << "the ring needs it too";
}

TEST_F(RingStartTest, an_aggregator_that_is_restarted_meanwhile_ends_nothing) {
  LoseHost(view_, "a1", kGone, "token", kNow);
  EXPECT_EQ(view_.job.state, kPreparing);
  EXPECT_FALSE(IsInRing(view_.job));
  JobView strict = view_;
  strict.job.spec.require_mode = kKernelMode;
  LoseHost(strict, "a1", kGone, "token", kNow);
  EXPECT_EQ(strict.job.state, kFailed);
  LoseHost(view_, "w1", kGone, "token", kNow);
  EXPECT_EQ(view_.job.state, kFailed);
}

TEST_F(RingStartTest, what_forbids_it) {
  const auto may = [&](const std::function<void(JobView&)>& change) {
    JobView view = view_;
    change(view);
    EXPECT_EQ(WhyStartInRing(view, kNow + 2 * kServeMs), "");
    return MayStartInRing(view);
  };
  ASSERT_TRUE(MayStartInRing(view_));
  ASSERT_NE(WhyStartInRing(view_, kNow + kServeMs), "");
  EXPECT_FALSE(may([](JobView& v) { v.job.spec.require_mode = kKernelMode; }));
  EXPECT_FALSE(may([](JobView& v) { v.job.spec.root = "server"; }));
  EXPECT_FALSE(may([](JobView& v) { v.members[1].rings = false; })) << "it requires the kernel";
  EXPECT_FALSE(may([](JobView& v) { v.members[1].connected = false; }));
  EXPECT_FALSE(may([](JobView& v) { v.members.resize(65, v.members[0]); }));
  EXPECT_TRUE(may([](JobView& v) { v.job.state = kReady; })) << "it has begun";
}

TEST_F(RingStartTest, opens_when_the_hosts_of_ranks_are_prepared_for_it) {
  Plan plan = view_.job.plan;
  plan.epoch = 2;
  plan.trees.resize(1);
  view_.job.fan = "multicast";
  StartInRing(view_, plan, "nobody sums", "token", kNow + 10);
  EXPECT_EQ(view_.job.state, kPreparing);
  EXPECT_TRUE(view_.hosts.empty()) << "prepared for another plan";
  EXPECT_EQ(view_.job.fan, "");
  EXPECT_THAT(HostsNeeded(view_.job), ElementsAre("w1", "w2"));
  OpenRing(view_, kNow + 20);
  EXPECT_EQ(view_.job.state, kPreparing);
  for (const char* host : {"w1", "w2"}) view_.hosts.push_back({view_.job.incarnation, host, true, 0, false, ""});
  OpenRing(view_, kNow + 9'000);
  EXPECT_EQ(view_.job.state, kReady);
  EXPECT_EQ(view_.job.ring.why, "nobody sums");
  EXPECT_EQ(RingFailure(view_, kNow + 9'000 + kRingOpenMs - 1), std::nullopt) << "ranks have their time from here on";
}

}  // namespace
}  // namespace mlnet::control
