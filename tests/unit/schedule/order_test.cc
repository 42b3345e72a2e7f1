// SPDX-License-Identifier: Apache-2.0
#include "schedule/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace mlnet::schedule {
namespace {

using Order = std::vector<uint32_t>;

std::vector<int64_t> SumOf(const std::vector<LearnedOrder>& ranks) {
  std::vector<int64_t> sum = ranks.at(0).Vote();
  for (size_t r = 1; r < ranks.size(); ++r) {
    const auto vote = ranks[r].Vote();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += vote.at(i);
  }
  return sum;
}

bool Step(LearnedOrder& learned, const Order& produced) {
  for (const uint32_t tensor : produced) learned.Saw(tensor);
  return learned.EndStep();
}

TEST(Order, fifo_leaves_it_to_the_sequence_and_layers_go_by_place) {
  EXPECT_EQ(FifoPriorities(3), (Order{0, 0, 0}));
  EXPECT_EQ(LayerPriorities(3), (Order{0, 1, 2}));
}

TEST(Order, the_gradient_produced_last_becomes_the_most_urgent) {
  LearnedOrder learned(4, {.skip_steps = 1, .watch_steps = 2});
  EXPECT_EQ(learned.first_step(), 3u);
  EXPECT_FALSE(Step(learned, {0, 1, 2, 3}));  // skipped
  EXPECT_FALSE(Step(learned, {2, 0, 3, 1}));
  EXPECT_EQ(learned.priorities(), FifoPriorities(4));
  EXPECT_EQ(learned.sequence(), LayerPriorities(4));
  EXPECT_TRUE(Step(learned, {2, 0, 3, 1}));
  EXPECT_FALSE(learned.is_in_force());
  ASSERT_TRUE(learned.Agree(learned.Vote()).has_value());
  EXPECT_EQ(learned.step(), learned.first_step());
  EXPECT_TRUE(learned.is_in_force());
  EXPECT_EQ(learned.priorities(), (Order{2, 0, 3, 1}));
  EXPECT_EQ(learned.sequence(), (Order{2, 0, 3, 1}));
  EXPECT_FALSE(Step(learned, {0, 1, 2, 3}));
  EXPECT_EQ(learned.sequence(), (Order{2, 0, 3, 1}));
}

TEST(Order, a_vote_that_takes_steps_comes_into_force_at_the_step_known_before) {
  LearnedOrder learned(2, {.skip_steps = 0, .watch_steps = 1, .lead_steps = 2});
  EXPECT_EQ(learned.first_step(), 3u);
  EXPECT_FALSE(learned.Agree(learned.Vote()).has_value());  // too early
  EXPECT_TRUE(Step(learned, {1, 0}));
  EXPECT_FALSE(Step(learned, {1, 0}));
  ASSERT_TRUE(learned.Agree(learned.Vote()).has_value());
  EXPECT_EQ(learned.sequence(), (Order{0, 1}));  // step 2
  EXPECT_FALSE(Step(learned, {1, 0}));
  EXPECT_EQ(learned.sequence(), (Order{1, 0}));  // step 3
}

TEST(Order, ranks_that_see_different_orders_agree_on_one_near_the_truth) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    constexpr size_t kTensors = 40;
    Order truth = LayerPriorities(kTensors);
    std::shuffle(truth.begin(), truth.end(), random);
    std::vector<LearnedOrder> ranks(4, LearnedOrder(kTensors, {}));
    for (bool is_vote = false; !is_vote;) {
      for (LearnedOrder& rank : ranks) {
        Order seen = truth;
        for (size_t i = 0; i + 1 < kTensors; ++i) {
          if (random() % 10 < 3) std::swap(seen[i], seen[i + 1]);
        }
        is_vote = Step(rank, seen);
      }
    }
    const auto sum = SumOf(ranks);
    for (LearnedOrder& rank : ranks) {
      ASSERT_TRUE(rank.Agree(sum).has_value());
      ASSERT_EQ(rank.sequence(), ranks[0].sequence());
      ASSERT_EQ(rank.priorities(), ranks[0].priorities());
    }
    for (size_t i = 0; i < kTensors; ++i) {
      const auto at = std::find(truth.begin(), truth.end(), ranks[0].sequence()[i]) - truth.begin();
      ASSERT_LE(std::abs(at - static_cast<int64_t>(i)), 2);
    }
  }
}

TEST(Order, a_tensor_without_gradient_is_the_least_urgent) {
  LearnedOrder learned(4, {.skip_steps = 0, .watch_steps = 1});
  learned.Saw(2);
  learned.Saw(3);
  learned.Saw(2);   // twice
  learned.Saw(17);  // nobody's
  learned.Saw(1);
  EXPECT_TRUE(learned.EndStep());
  ASSERT_TRUE(learned.Agree(learned.Vote()).has_value());
  EXPECT_EQ(learned.sequence(), (Order{0, 2, 3, 1}));
  EXPECT_EQ(learned.priorities(), (Order{3, 0, 2, 1}));
}

TEST(Order, votes_on_different_things_are_refused_by_all_alike) {
  const LearnSettings settings{.skip_steps = 0, .watch_steps = 1};
  std::vector<LearnedOrder> ranks = {LearnedOrder(2, settings),
                                     LearnedOrder(2, {.skip_steps = 1, .watch_steps = 1})};
  EXPECT_TRUE(Step(ranks[0], {1, 0}));
  EXPECT_FALSE(Step(ranks[1], {1, 0}));
  EXPECT_TRUE(Step(ranks[1], {1, 0}));
  const auto sum = SumOf(ranks);
  for (LearnedOrder& rank : ranks) {
    const auto agreed = rank.Agree(sum);
    ASSERT_FALSE(agreed.has_value());
    EXPECT_EQ(agreed.error().code, ErrorCode::kMismatch);
    EXPECT_FALSE(rank.is_in_force());
  }
  EXPECT_FALSE(ranks[0].Agree(LearnedOrder(3, settings).Vote()).has_value());
  EXPECT_FALSE(ranks[0].Agree({}).has_value());
}

TEST(Order, a_vote_that_comes_late_is_refused) {
  LearnedOrder learned(2, {.skip_steps = 0, .watch_steps = 1});
  EXPECT_TRUE(Step(learned, {1, 0}));
  EXPECT_FALSE(Step(learned, {1, 0}));
  const auto late = learned.Agree(learned.Vote());
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(learned.is_in_force());
}

}  // namespace
}  // namespace mlnet::schedule
