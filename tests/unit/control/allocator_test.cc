// SPDX-License-Identifier: Apache-2.0
#include "control/allocator.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace mlnet::control {
namespace {

TEST(allocator, ids_come_lowest_first_and_come_back) {
  IdPool pool(1, 3);
  EXPECT_EQ(pool.Take(), 1u);
  EXPECT_EQ(pool.Take(), 2u);
  EXPECT_EQ(pool.Take(), 3u);
  EXPECT_EQ(pool.Take(), std::nullopt);
  pool.Give(3);
  pool.Give(1);
  EXPECT_EQ(pool.Take(), 1u);
  EXPECT_EQ(pool.Take(), 3u);
  EXPECT_EQ(pool.Take(), std::nullopt);
}

TEST(allocator, range_that_does_not_fit_changes_nothing) {
  RangePool pool(10);
  EXPECT_EQ(pool.Take(4), 0u);
  EXPECT_EQ(pool.Take(7), std::nullopt);
  EXPECT_EQ(pool.LongestFree(), 6u);
  EXPECT_EQ(pool.Take(6), 4u);
  EXPECT_EQ(pool.LongestFree(), 0u);
}

TEST(allocator, neighbours_merge_in_any_order) {
  RangePool pool(9);
  for (uint32_t first : {0u, 3u, 6u}) ASSERT_EQ(pool.Take(3), first);
  pool.Give(0, 3);
  pool.Give(6, 3);
  EXPECT_EQ(pool.LongestFree(), 3u);
  pool.Give(3, 3);
  EXPECT_EQ(pool.LongestFree(), 9u);
}

// Against a bitmap: no range is given twice, and everything comes back.
TEST(allocator, random_use_never_overlaps) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  RangePool pool(256);
  std::vector<bool> used(256);
  std::vector<std::pair<uint32_t, uint32_t>> held;
  for (int i = 0; i < 5000; ++i) {
    const uint32_t count = 1 + random() % 40;
    if (const auto first = pool.Take(count)) {
      for (uint32_t j = 0; j < count; ++j) {
        ASSERT_FALSE(used.at(*first + j));
        used[*first + j] = true;
      }
      held.emplace_back(*first, count);
    }
    if (held.empty() || random() % 2 == 0) continue;
    std::swap(held[random() % held.size()], held.back());
    const auto [first, n] = held.back();
    held.pop_back();
    pool.Give(first, n);
    for (uint32_t j = 0; j < n; ++j) used[first + j] = false;
  }
  for (const auto& [first, count] : held) pool.Give(first, count);
  EXPECT_EQ(pool.LongestFree(), 256u);
}

// As after a restart: what jobs have is named by them, in any order.
TEST(allocator, ids_that_are_held_already_can_be_taken_and_no_others_are_given) {
  IdPool pool(1, 6);
  EXPECT_TRUE(pool.TakeThis(4));
  EXPECT_TRUE(pool.TakeThis(2));
  EXPECT_FALSE(pool.TakeThis(4)) << "twice";
  EXPECT_FALSE(pool.TakeThis(0)) << "not of the pool";
  EXPECT_FALSE(pool.TakeThis(7)) << "not of the pool";
  for (uint32_t free : {1u, 3u, 5u, 6u}) EXPECT_EQ(pool.Take(), free);
  EXPECT_FALSE(pool.Take());
  pool.Give(4);
  EXPECT_TRUE(pool.TakeThis(4));
}

TEST(allocator, ranges_that_are_held_already_can_be_taken_and_no_others_are_given) {
  RangePool pool(20);
  EXPECT_TRUE(pool.TakeThis(5, 5));
  EXPECT_FALSE(pool.TakeThis(9, 2)) << "the first is taken";
  EXPECT_FALSE(pool.TakeThis(4, 2)) << "the last is taken";
  EXPECT_FALSE(pool.TakeThis(16, 5)) << "beyond the end";
  EXPECT_TRUE(pool.TakeThis(15, 5));
  EXPECT_TRUE(pool.TakeThis(0, 0));
  EXPECT_EQ(pool.LongestFree(), 5u);
  EXPECT_EQ(pool.Take(5), 0u);
  EXPECT_EQ(pool.Take(5), 10u);
  EXPECT_FALSE(pool.Take(1));
  for (uint32_t first : {0u, 5u, 10u, 15u}) pool.Give(first, 5);
  EXPECT_EQ(pool.LongestFree(), 20u);
}

}  // namespace
}  // namespace mlnet::control
