// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/layers_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "temp_folder.h"

namespace mlnet::perf {
namespace {

using testing::ElementsAre;

constexpr PolicyOptions kOptions{.bytes_per_s = 1'000'000, .partition_bytes = 4096, .credit_bytes = 8192};

// Twelve layers in a chain, more than there are classes.
Trace Chain() {
  Trace trace;
  trace.model = "chain";
  for (uint32_t i = 0; i < 12; ++i) {
    TraceLayer layer{"layer", 4000 * (i + 1), 1'000'000, 2'000'000, {}};
    if (i > 0) layer.needs = {i - 1};
    trace.layers.push_back(layer);
  }
  return trace;
}

std::vector<uint32_t> Priorities(const LayersPlan& plan) {
  std::vector<uint32_t> priorities;
  for (const PlannedTensor& tensor : plan.tensors) priorities.push_back(tensor.priority);
  return priorities;
}

std::vector<uint32_t> Counting(size_t n) {
  std::vector<uint32_t> numbers(n);
  std::iota(numbers.begin(), numbers.end(), 0U);
  return numbers;
}

TEST(LayersAt, TransfersTakeTheirBytesAtTheRate) {
  const auto layers = LayersAt(Chain(), 1'000'000);
  ASSERT_EQ(layers.size(), 12u);
  EXPECT_EQ(layers[2].transfer_ns, 12'000'000u);  // 12,000 bytes at 1 MB/s
  EXPECT_EQ(layers[2].forward_ns, 1'000'000u);
  EXPECT_EQ(layers[2].backward_ns, 2'000'000u);
}

TEST(MakePlan, FifoIsTheCoreSwitchedOff) {
  const LayersPlan plan = MakePlan(Chain(), "fifo", kOptions);
  EXPECT_THAT(Priorities(plan), testing::Each(0u));
  EXPECT_EQ(plan.policy.partition_bytes, 0u);
  EXPECT_EQ(plan.policy.credit_bytes, 0u);
  EXPECT_EQ(plan.policy.classes.num_levels, 1u);
  EXPECT_EQ(plan.tensors[1].count, 2000u);
}

TEST(MakePlan, LayersSendsWholeTensorsInEightClasses) {
  const LayersPlan plan = MakePlan(Chain(), "layers", kOptions);
  EXPECT_EQ(Priorities(plan), Counting(12));
  EXPECT_EQ(plan.policy.partition_bytes, 0u);
  EXPECT_EQ(plan.policy.credit_bytes, 8192u);
  EXPECT_EQ(plan.policy.classes.num_levels, 8u);
  EXPECT_EQ(plan.policy.classes.LevelOf(0), 0u);
  EXPECT_EQ(plan.policy.classes.LevelOf(11), 7u);
}

TEST(MakePlan, P3AndByteSchedulerCutAndHaveCredit) {
  const LayersPlan p3 = MakePlan(Chain(), "p3", kOptions), byte = MakePlan(Chain(), "bytescheduler", kOptions);
  EXPECT_EQ(p3.policy.partition_bytes, 200'000u);  // 50,000 floats
  EXPECT_EQ(p3.policy.credit_bytes, 400'000u);  // two slices
  EXPECT_EQ(byte.policy.partition_bytes, 4096u);
  EXPECT_EQ(byte.policy.credit_bytes, 8192u);
  EXPECT_EQ(p3.policy.classes, byte.policy.classes);
  EXPECT_EQ(p3.policy.classes.num_levels, 8u);
}

TEST(MakePlan, CreditIsTwentyMillisecondsOfTheRateOrEnoughForTwoChunksUnlessItIsGiven) {
  const PolicyOptions fast{.bytes_per_s = 100'000'000};
  const LayersPlan p3 = MakePlan(Chain(), "p3", fast), byte = MakePlan(Chain(), "bytescheduler", fast);
  EXPECT_EQ(p3.policy.credit_bytes, 2'000'000u);
  EXPECT_EQ(byte.policy.credit_bytes, 2'000'000u);
  EXPECT_EQ(byte.policy.partition_bytes, 1'000'000u);
  const LayersPlan slow = MakePlan(Chain(), "bytescheduler", {.bytes_per_s = 1'000'000});
  EXPECT_EQ(slow.policy.credit_bytes, 200'000u);
  EXPECT_EQ(slow.policy.partition_bytes, 100'000u);
}

// In a chain each forward waits for all sums before it, so the next one is always the only one that lets it go on.
TEST(TacPlaces, OfAChainAreItsOrder) { EXPECT_EQ(TacPlaces(Chain(), 1'000'000), Counting(12)); }

// 0 -> 1, 0 -> 2, (1, 2) -> 3 with a long forward of 2 and a slow sum of 1: papers.md, 6.2, "B slow, f3 heavy".
TEST(TacPlaces, OfADiamondPutTheHeavyBranchFirst) {
  Trace trace;
  trace.layers = {{"a", 1000, 1'000'000, 1, {}}, {"b", 3000, 1'000'000, 1, {0}}, {"c", 1000, 3'000'000, 1, {0}},
                  {"d", 1000, 1'000'000, 1, {1, 2}}};
  EXPECT_THAT(TacPlaces(trace, 1'000'000), ElementsAre(0, 2, 1, 3));
  const LayersPlan plan = MakePlan(trace, "tac", kOptions);
  EXPECT_THAT(Priorities(plan), ElementsAre(0, 2, 1, 3));
  EXPECT_EQ(plan.policy.partition_bytes, 0u);
}

TEST(LayersPlan, IsTheSameWhenRead) {
  const test::TempFolder folder;
  LayersPlan plan = MakePlan(Chain(), "bytescheduler", kOptions);
  plan.rate_calls = 2;
  plan.warmup = 3;
  plan.iterations = 4;
  const std::string file = folder / "plan.json";
  ASSERT_TRUE(SavePlan(file, plan));
  const auto read = LoadPlan(file);
  ASSERT_TRUE(read) << read.error().ToString();
  EXPECT_EQ(read->policy.partition_bytes, plan.policy.partition_bytes);
  EXPECT_EQ(read->policy.credit_bytes, plan.policy.credit_bytes);
  EXPECT_EQ(read->policy.classes, plan.policy.classes);
  EXPECT_EQ(read->rate_calls, 2);
  EXPECT_EQ(read->warmup, 3);
  EXPECT_EQ(read->iterations, 4);
  ASSERT_EQ(read->tensors.size(), plan.tensors.size());
  EXPECT_EQ(read->tensors[7].count, plan.tensors[7].count);
  EXPECT_EQ(read->tensors[7].priority, 7u);
  EXPECT_EQ(read->tensors[7].forward_ns, 1'000'000u);
  EXPECT_EQ(read->tensors[7].backward_ns, 2'000'000u);
}

}  // namespace
}  // namespace mlnet::perf
