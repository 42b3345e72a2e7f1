// SPDX-License-Identifier: Apache-2.0
#include "layers_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mlnet-perf/layers_files.h"

namespace mlnet::lab {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

perf::RankRow Row(const char* name, std::vector<uint64_t> times_ns) {
  perf::RankRow row;
  row.variant = name;
  row.times_ns = std::move(times_ns);
  return row;
}

std::vector<perf::RankRow> Rank(std::vector<uint64_t> starts, std::vector<uint64_t> ends, uint64_t first_wait, uint64_t wrong) {
  perf::RankRow total = Row(perf::kTotalRow, {5, 0, 0, 0, 0, 0, 0, 2});
  total.wrong = wrong;
  total.checked = 10;
  total.retransmits = 1;
  return {Row(perf::kRateRow, {500'000'000}), Row(perf::kStartRow, std::move(starts)), Row(perf::kEndRow, std::move(ends)),
          Row(perf::kFirstWaitRow, {first_wait, first_wait}), total};
}

TEST(SpreadOf, IsTheMedianAndTheEnds) {
  const Spread odd = SpreadOf({3, 1, 2}), even = SpreadOf({4, 1, 2, 3});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.most, 3);
  EXPECT_EQ(even.median, 2.5);
}

TEST(MergeTurn, AnIterationGoesFromTheFirstStartToTheLastEnd) {
  PolicyOutcome outcome;
  std::vector<double> rates;
  const auto early = Rank({1'000'000'000, 5'000'000'000}, {2'000'000'000, 6'500'000'000}, 100'000'000, 0);
  auto late = Rank({1'200'000'000, 4'900'000'000}, {2'300'000'000, 6'400'000'000}, 300'000'000, 2);
  late[0].times_ns = {2'000'000'000};
  MergeTurn({early, late}, 1000, outcome, &rates);
  EXPECT_THAT(outcome.iterations_s, ElementsAre(DoubleNear(1.3, 1e-9), DoubleNear(1.6, 1e-9)));
  EXPECT_THAT(outcome.first_waits_s, ElementsAre(DoubleNear(0.3, 1e-9), DoubleNear(0.3, 1e-9)));
  EXPECT_THAT(rates, ElementsAre(DoubleNear(500, 1e-9)));  // 1000 bytes in the slower rank's two seconds
  EXPECT_EQ(outcome.wrong, 2u);
  EXPECT_EQ(outcome.checked, 20u);
  EXPECT_EQ(outcome.retransmits, 2u);
  EXPECT_THAT(outcome.calls, ElementsAre(5, 0, 0, 0, 0, 0, 0, 2));  // of one rank
}

// Two layers: backward 1 s each, forward 1 s each, transfers of 1 s (the first layer's) and 3 s. The second is ready at 1,
// the first at 2. Best: the first interrupts at 2, is in at 3, forward of it until 4; the second's last 2 s end at 5, so 6.
// FIFO: the second until 4, the first until 5, forward from 5 to 7.
LayersOutcome TwoLayers() {
  LayersOutcome outcome;
  outcome.trace.model = "two";
  outcome.trace.layers = {{"a", 1000, 1'000'000'000, 1'000'000'000, {}}, {"b", 3000, 1'000'000'000, 1'000'000'000, {0}}};
  outcome.ranks = 2;
  outcome.rates = {900, 1000, 1100};
  PolicyOutcome& fifo = outcome.policies.emplace_back();
  fifo.policy = "fifo";
  fifo.iterations_s = {7.5, 8, 9};
  fifo.first_waits_s = {3};
  PolicyOutcome& layers = outcome.policies.emplace_back();
  layers.policy = "layers";
  layers.iterations_s = {6, 6.6, 7};
  layers.first_waits_s = {1};
  layers.wrong = 3;
  return outcome;
}

TEST(LayersOutcome, IsComparedWithTheBestScheduleAtTheMedianRate) {
  const LayersOutcome outcome = TwoLayers();
  EXPECT_NEAR(outcome.BoundS(), 6, 1e-6);
  const Json json = OutcomeToJson(outcome);
  EXPECT_NEAR(json["bound_s"], 6, 1e-6);
  EXPECT_NEAR(json["fifo_bound_s"], 7, 1e-6);
  EXPECT_NEAR(json["compute_s"], 4, 1e-9);
  EXPECT_EQ(json["wrong"], 3);
  EXPECT_NEAR(json["policies"][1]["to_bound"], 1.1, 1e-6);
  EXPECT_NEAR(json["policies"][1]["to_fifo"], 6.6 / 8, 1e-6);
  EXPECT_NEAR(json["policies"][0]["first_wait_s"], 3, 1e-9);
}

TEST(RenderOutcome, HasARowForEachPolicy) {
  const std::string text = RenderOutcome(TwoLayers());
  EXPECT_THAT(text, HasSubstr("bound 6.000 s; FIFO at best 7.000 s"));
  EXPECT_THAT(text, HasSubstr("\nlayers              6.600      6.000      7.000      1.100     0.825         1.000"));
}

}  // namespace
}  // namespace mlnet::lab
