// SPDX-License-Identifier: Apache-2.0
#include "schedule/tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace mlnet::schedule {
namespace {

constexpr TuneSteps kSteps{.settle_steps = 2, .measure_steps = 10};

// Steps until the tuner wants to agree.
int StepsUntilVote(Tuner& tuner, uint64_t step_ns) {
  for (int i = 1; i < 1000; ++i) {
    if (tuner.EndStep(step_ns)) return i;
  }
  return -1;
}

TEST(Tuner, a_trial_is_so_many_steps_and_its_cost_their_trimmed_mean) {
  Tuner tuner(kSteps, Search({}));
  EXPECT_EQ(tuner.point(), TunePoint{});
  EXPECT_FALSE(tuner.EndStep(1'000'000));  // settling
  EXPECT_FALSE(tuner.EndStep(1'000'000));
  for (uint64_t i = 1; i < 10; ++i) EXPECT_FALSE(tuner.EndStep(i == 4 ? 500 : 10 * i));
  EXPECT_TRUE(tuner.EndStep(1));  // 1 and 500 are trimmed: 10, 20, 30, 50, 60, 70, 80, 90
  EXPECT_EQ(tuner.cost_ns(), 51u);
  EXPECT_TRUE(tuner.must_wait());
  ASSERT_TRUE(tuner.Agree(60).has_value());
  EXPECT_FALSE(tuner.must_wait());
  EXPECT_EQ(tuner.search().trials().back().cost_ns, 60u);
  EXPECT_EQ(tuner.point(), tuner.search().point());
  EXPECT_NE(tuner.point(), TunePoint{});
  EXPECT_EQ(StepsUntilVote(tuner, 5), 12);
}

TEST(Tuner, its_point_goes_into_the_policy) {
  Tuner tuner(kSteps, Search({.start = {1 << 20, 2 << 20}}));
  Policy policy = P3Policy(ClassMap{});
  policy.is_immediate = false;
  const Policy applied = tuner.Apply(policy);
  EXPECT_EQ(applied.partition_bytes, 1u << 20);
  EXPECT_EQ(applied.credit_bytes, 2u << 20);
  EXPECT_FALSE(applied.is_immediate);
}

TEST(Tuner, agreeing_when_nothing_was_measured_or_on_nothing_is_refused) {
  Tuner tuner(kSteps, Search({}));
  EXPECT_FALSE(tuner.Agree(5).has_value());
  EXPECT_EQ(StepsUntilVote(tuner, 5), 12);
  EXPECT_FALSE(tuner.Agree(0).has_value());
  EXPECT_TRUE(tuner.Agree(5).has_value());
  EXPECT_FALSE(tuner.Agree(5).has_value());
}

TEST(Tuner, with_a_lead_the_point_changes_after_it_whenever_the_agreement_came) {
  for (const int agree_after : {0, 1, 2, 3}) {
    SCOPED_TRACE(agree_after);
    Tuner tuner({.settle_steps = 0, .measure_steps = 1, .lead_steps = 3}, Search({}));
    EXPECT_TRUE(tuner.EndStep(100));
    for (int step = 0; step <= 3; ++step) {
      if (step == agree_after) {
        ASSERT_TRUE(tuner.Agree(100).has_value());
      }
      EXPECT_EQ(tuner.must_wait(), false);
      if (step < 3) {
        EXPECT_EQ(tuner.point(), TunePoint{}) << step;
        EXPECT_FALSE(tuner.EndStep(100));
        EXPECT_EQ(tuner.must_wait(), step == 2 && agree_after == 3);
      }
    }
    EXPECT_NE(tuner.point(), TunePoint{});
    EXPECT_TRUE(tuner.EndStep(100));
  }
}

TEST(Tuner, ranks_that_measure_differently_and_hear_at_different_times_have_the_same_point_in_every_step) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const TuneSteps steps{.settle_steps = 1, .measure_steps = 5, .lead_steps = 4};
    std::vector<Tuner> ranks(4, Tuner(steps, Search({.seed = seed})));
    std::vector<int> wait(ranks.size(), -1);  // steps until this rank hears of the agreement
    uint64_t agreed = 0;
    for (int step = 0; step < 15 * 10 + 20; ++step) {
      for (size_t r = 0; r < ranks.size(); ++r) {
        if (wait[r] >= 0 && wait[r]-- == 0) {
          ASSERT_TRUE(ranks[r].Agree(agreed).has_value());
        }
        ASSERT_FALSE(ranks[r].must_wait());
      }
      size_t num_votes = 0;
      for (const Tuner& rank : ranks) ASSERT_EQ(rank.point(), ranks[0].point()) << step;
      for (Tuner& rank : ranks) num_votes += rank.EndStep(1000 + random() % 1000);
      ASSERT_TRUE(num_votes == 0 || num_votes == ranks.size());
      if (num_votes == 0) continue;
      agreed = 0;
      for (size_t r = 0; r < ranks.size(); ++r) {
        agreed = std::max(agreed, ranks[r].cost_ns());
        wait[r] = static_cast<int>(random() % 5);
      }
    }
    for (const Tuner& rank : ranks) ASSERT_TRUE(rank.is_settled());
  }
}

TEST(Tuner, once_settled_it_stays_at_the_best_and_measures_no_more) {
  Tuner tuner({.settle_steps = 0, .measure_steps = 1}, Search({.num_trials = 6}));
  for (uint64_t i = 0; i < 6; ++i) {
    EXPECT_FALSE(tuner.is_settled());
    ASSERT_TRUE(tuner.EndStep(i == 2 ? 10 : 1000));
    ASSERT_TRUE(tuner.Agree(tuner.cost_ns()).has_value());
  }
  EXPECT_TRUE(tuner.is_settled());
  EXPECT_EQ(tuner.point(), tuner.search().trials()[2].point);
  EXPECT_FALSE(tuner.EndStep(1));
  EXPECT_FALSE(tuner.must_wait());
  EXPECT_EQ(tuner.point(), tuner.search().trials()[2].point);
}

}  // namespace
}  // namespace mlnet::schedule
