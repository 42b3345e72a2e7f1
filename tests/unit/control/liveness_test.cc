// SPDX-License-Identifier: Apache-2.0
// Who is lost, from what a host's kernel last heard. Two worker hosts, rank 0 on w1, ranks 1 and 2 on w2, summed on a1.
#include "control/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mlnet::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kBegin = 1'000'000 * kMs;

class LivenessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    view_.job.state = kReady;
    view_.job.world_size = 3;
    view_.job.spec.lost_ms = 800;
    Plan& plan = view_.job.plan;
    for (const char* host : {"a1", "w1", "w2"}) plan.ports.push_back({host, "eth0", std::string("10.0.0.") + host[1], "169.254.1.1"});
    plan.trees.push_back({1, {{0, -1}, {1, 0}, {2, 0}}});
    plan.host_of_rank = {"w1", "w2", "w2"};
    for (int rank = 0; rank < 3; ++rank) {
      view_.members.push_back({1, rank, plan.host_of_rank[static_cast<size_t>(rank)], 100 + rank, true, false, 0, "", true});
    }
  }

  // Looks each 50 ms until `at_ms`, with the same signs at all times: ms after the beginning, the root's children and the
  // root's answer.
  std::optional<Loss> LookUntil(uint64_t at_ms, const std::string& host, const std::map<size_t, uint64_t>& children_ms,
                                std::optional<uint64_t> answer_ms = std::nullopt) {
    TreeSigns signs;
    for (const auto& [child, ms] : children_ms) signs.children[child] = ms == 0 ? 0 : kBegin + ms * kMs;
    if (answer_ms) signs.answer_ns = *answer_ms == 0 ? 0 : kBegin + *answer_ms * kMs;
    for (uint64_t ms = 0; ms <= at_ms; ms += 50) {
      if (auto loss = liveness_.Look(view_, host, {{signs}, stopped_}, kBegin + ms * kMs)) return loss;
    }
    return std::nullopt;
  }

  JobView view_;
  std::set<int> stopped_;
  Liveness liveness_{1, kBegin};
};

TEST_F(LivenessTest, a_child_that_is_silent_for_too_long_is_named_with_all_its_ranks) {
  EXPECT_FALSE(LookUntil(1'100, "a1", {{0, 1'000}, {1, 350}}));
  const auto loss = LookUntil(1'150, "a1", {{0, 1'000}, {1, 350}});
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->error.code, ErrorCode::kRankLost);
  EXPECT_THAT(loss->error.message, HasSubstr("host a1 has not heard of rank 1 (host w2, pid 101), rank 2 (host w2, pid 102) for 800 ms"));
  EXPECT_THAT(loss->ranks, ElementsAre(1, 2));
}

TEST_F(LivenessTest, one_that_was_heard_before_the_first_look_has_no_more_time_than_others) {
  const auto first = [&](const std::string& host, const TreeSigns& signs) {
    Liveness liveness(1, kBegin);
    uint64_t ms = 0;
    while (ms < 5'000 && !liveness.Look(view_, host, {{signs}, {}}, kBegin + ms * kMs)) ms += 50;
    return ms;
  };
  EXPECT_EQ(first("a1", {{{0, kBegin - 10 * kMs}, {1, kBegin - 10 * kMs}}, std::nullopt}), 800u);
  EXPECT_EQ(first("w1", {{}, kBegin}), 800u);
}

TEST_F(LivenessTest, one_that_was_never_heard_has_time_until_the_path_is_known) {
  EXPECT_FALSE(LookUntil(4'950, "a1", {{0, 0}, {1, 4'900}}));
  const auto loss = LookUntil(5'000, "a1", {{0, 0}, {1, 4'900}});
  ASSERT_TRUE(loss);
  EXPECT_THAT(loss->ranks, ElementsAre(0));
}

TEST_F(LivenessTest, who_has_left_or_never_pings_is_not_missed) {
  view_.members[0].connected = false;
  view_.members[1].pings = false;
  auto loss = LookUntil(850, "a1", {{0, 50}, {1, 50}});
  ASSERT_TRUE(loss);
  EXPECT_THAT(loss->ranks, ElementsAre(2));
  view_.members[2].pings = false;
  EXPECT_FALSE(LookUntil(9'000, "a1", {{0, 50}, {1, 50}}));
}

TEST_F(LivenessTest, a_root_that_does_not_answer_is_named) {
  EXPECT_FALSE(LookUntil(1'050, "w2", {}, 300));
  const auto loss = LookUntil(1'100, "w2", {}, 300);
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(loss->error.message, HasSubstr("host a1, which sums at 10.0.0.1, has not answered host w2 for 800 ms"));
  EXPECT_TRUE(loss->ranks.empty());
}

TEST_F(LivenessTest, a_rank_that_is_stopped_is_named_by_its_own_host_and_the_root_not_blamed) {
  EXPECT_FALSE(LookUntil(1'000, "w2", {}, 900));
  stopped_ = {1, 2};
  EXPECT_FALSE(liveness_.Look(view_, "w2", {{{{}, kBegin + 900 * kMs}}, stopped_}, kBegin + 1'050 * kMs));
  std::optional<Loss> loss;
  uint64_t ms = 1'100;
  for (; !loss && ms < 5'000; ms += 50) loss = liveness_.Look(view_, "w2", {{{{}, kBegin + 900 * kMs}}, stopped_}, kBegin + ms * kMs);
  ASSERT_TRUE(loss);
  EXPECT_EQ(ms, 1'900u);
  EXPECT_THAT(loss->error.message, HasSubstr("rank 1 (host w2, pid 101) has been stopped for 800 ms"));
  EXPECT_THAT(loss->ranks, ElementsAre(1));
}

TEST_F(LivenessTest, ranks_that_go_on_have_time_to_ask_the_root) {
  stopped_ = {1, 2};
  EXPECT_FALSE(LookUntil(750, "w2", {}, 50));
  stopped_ = {};
  const Signs signs{{{{}, kBegin + 50 * kMs}}, {}};
  for (uint64_t ms = 800; ms < 1'550; ms += 50) EXPECT_FALSE(liveness_.Look(view_, "w2", signs, kBegin + ms * kMs)) << ms;
  EXPECT_TRUE(liveness_.Look(view_, "w2", signs, kBegin + 1'550 * kMs));
}

TEST_F(LivenessTest, a_host_that_stood_still_itself_starts_all_waits_anew) {
  const auto look = [&](uint64_t ms) { return liveness_.Look(view_, "a1", {{{{{0, kBegin + 1}, {1, kBegin + 1}}, std::nullopt}}, {}}, kBegin + ms * kMs); };
  EXPECT_FALSE(look(300));
  EXPECT_FALSE(look(5'000));  // nobody could ping either
  for (uint64_t ms = 5'100; ms < 5'800; ms += 100) EXPECT_FALSE(look(ms)) << ms;
  EXPECT_TRUE(look(5'800));
}

TEST_F(LivenessTest, zero_means_that_silence_is_no_loss) {
  view_.job.spec.lost_ms = 0;
  EXPECT_FALSE(LookUntil(100'000, "a1", {{0, 0}, {1, 0}}, 0));
}

}  // namespace
}  // namespace mlnet::control
