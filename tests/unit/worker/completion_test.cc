// SPDX-License-Identifier: Apache-2.0
#include "completion.h"

#include <gtest/gtest.h>

#include <thread>

namespace mlnet::worker {
namespace {

TEST(Completion, the_first_outcome_stays) {
  WorkState work;
  EXPECT_FALSE(work.IsDone());
  work.Complete(Err(ErrorCode::kRankLost, "rank 1 exited"));
  work.Complete({});
  EXPECT_TRUE(work.IsDone());
  EXPECT_EQ(work.Wait(std::chrono::milliseconds{0}).error().code, ErrorCode::kRankLost);
}

TEST(Completion, a_short_wait_ends_without_ending_the_work) {
  WorkState work;
  const auto outcome = work.Wait(std::chrono::milliseconds{1});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kTimeout);
  EXPECT_FALSE(work.IsDone());
  work.Complete({});
  EXPECT_TRUE(work.Wait(std::chrono::milliseconds{1}).has_value());
}

TEST(Completion, wakes_every_waiter) {
  WorkState work;
  std::thread one([&] { EXPECT_TRUE(work.Wait(std::chrono::milliseconds{0}).has_value()); });
  std::thread two([&] { EXPECT_TRUE(work.Wait(std::chrono::milliseconds{0}).has_value()); });
  work.Complete({});
  one.join();
  two.join();
}

}  // namespace
}  // namespace mlnet::worker
