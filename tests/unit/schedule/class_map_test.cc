// SPDX-License-Identifier: Apache-2.0
// The map of priorities on levels, against all maps there are.
#include "schedule/class_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace mlnet::schedule {
namespace {

using Layers = std::vector<Layer>;

ClassMap MapOf(const std::vector<uint32_t>& last) {
  ClassMap map;
  map.num_levels = last.size();
  std::copy(last.begin(), last.end(), map.last_priority.begin());
  return map;
}

Layers AnyLayers(std::mt19937& random, size_t n) {
  Layers layers(n);
  for (Layer& layer : layers) layer = {random() % 30, random() % 20, random() % 50};
  return layers;
}

// Bit i of `cuts`: a border after layer i.
ClassMap MapOfCuts(uint32_t cuts, uint32_t n) {
  std::vector<uint32_t> last;
  for (uint32_t i = 0; i + 1 < n; ++i) {
    if ((cuts >> i & 1) != 0) last.push_back(i);
  }
  last.push_back(UINT32_MAX);
  return MapOf(last);
}

TEST(ClassMap, a_priority_belongs_to_the_first_level_that_reaches_it) {
  const ClassMap map = MapOf({3, 10, UINT32_MAX});
  EXPECT_EQ(map.LevelOf(0), 0u);
  EXPECT_EQ(map.LevelOf(3), 0u);
  EXPECT_EQ(map.LevelOf(4), 1u);
  EXPECT_EQ(map.LevelOf(10), 1u);
  EXPECT_EQ(map.LevelOf(11), 2u);
  EXPECT_EQ(map.LevelOf(UINT32_MAX), 2u);
  EXPECT_EQ(ClassMap{}.LevelOf(5), 0u);
}

TEST(ClassMap, no_other_borders_give_a_shorter_iteration) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const uint32_t n = 2 + seed % 9;
    const Layers layers = AnyLayers(random, n);
    const size_t num_levels = 1 + random() % 4;
    uint64_t best = UINT64_MAX;
    for (uint32_t cuts = 0; cuts < 1u << (n - 1); ++cuts) {
      if (static_cast<size_t>(__builtin_popcount(cuts)) >= num_levels) continue;
      best = std::min(best, IterationInLevels(layers, MapOfCuts(cuts, n)));
    }
    ASSERT_EQ(IterationInLevels(layers, MapLayers(layers, num_levels)), best);
  }
}

TEST(ClassMap, with_a_level_for_each_layer_it_is_the_best_order_and_with_one_it_is_fifo) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const Layers layers = AnyLayers(random, 1 + seed % 8);
    ASSERT_EQ(IterationInLevels(layers, MapLayers(layers, 8)), BestIteration(layers));
    ASSERT_EQ(IterationInLevels(layers, MapLayers(layers, 1)), FifoIteration(layers));
    ASSERT_EQ(MapLayers(layers, 1).num_levels, 1u);
  }
}

TEST(ClassMap, equal_priorities_share_a_level_and_every_level_is_used) {
  const std::vector<TensorDemand> tensors = {{0, 10}, {0, 10}, {7, 10}, {7, 10}, {9, 50}, {100, 60}};
  const ClassMap map = MapBytes(tensors, 8);
  EXPECT_EQ(map, MapOf({0, 7, 9, UINT32_MAX}));
  const ClassMap two = MapBytes(tensors, 2);
  EXPECT_EQ(two.num_levels, 2u);
  EXPECT_EQ(MapBytes({}, 8), ClassMap{});
  EXPECT_EQ(MapLayers({}, 8), ClassMap{});
  EXPECT_EQ(MapBytes(tensors, 0), ClassMap{});
}

TEST(ClassMap, where_all_borders_are_as_good_a_level_holds_no_more_waiting_than_it_must) {
  // So little is computed that the last transfer decides; still no level may hold nearly everything.
  const Layers layers(16, {.backward_ns = 0, .forward_ns = 0, .transfer_ns = 100});
  const ClassMap map = MapLayers(layers, 8);
  EXPECT_EQ(map, MapOf({1, 3, 5, 7, 9, 11, 13, UINT32_MAX}));
}

TEST(ClassMap, many_tensors_take_no_time_worth_mentioning) {
  std::mt19937 random(1);
  std::vector<TensorDemand> tensors;
  for (uint32_t i = 0; i < 1000; ++i) tensors.push_back({i, random() % 100000000});
  const ClassMap map = MapBytes(tensors, 8);
  EXPECT_EQ(map.num_levels, 8u);
  EXPECT_TRUE(std::is_sorted(map.last_priority.begin(), map.last_priority.end()));
}

}  // namespace
}  // namespace mlnet::schedule
