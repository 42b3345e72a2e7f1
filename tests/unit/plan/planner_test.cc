// SPDX-License-Identifier: Apache-2.0
// The choice and its reason, and the weights that links of unequal rates lead to.
#include "plan/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "unit/plan/clusters.h"

namespace mlnet::plan {
namespace {

// Closed form for one switch and worker hosts as roots (userspace/plan/DESIGN.md): a root with share w on a link of
// rate d is busy for (1 + w(n-2)) * S/d, so w = max(0, (v*d - 1)/(n-2)) with v such that the shares fill 1.
std::map<std::string, double> WaterFilled(const std::vector<double>& rates) {
  const double n = static_cast<double>(rates.size());
  const auto share = [&](double rate, double v) { return std::max(0.0, (v * rate - 1) / (n - 2)); };
  double low = 0, high = 1e6;
  for (int i = 0; i < 200; ++i) {
    const double v = (low + high) / 2;
    double sum = 0;
    for (double rate : rates) sum += share(rate, v);
    (sum < 1 ? low : high) = v;
  }
  std::map<std::string, double> shares;
  for (size_t i = 0; i < rates.size(); ++i) shares["w" + std::to_string(i + 1)] = share(rates[i], high);
  return shares;
}

TEST(Weights, OfWorkerRootsFollowTheWaterLevel) {
  const std::vector<double> rates = {1, 1.2, 1.5, 2, 1.1};
  Cluster c = OneSwitch(rates.size(), 0);
  for (size_t i = 0; i < rates.size(); ++i) c.hosts[i].up_bps = c.hosts[i].down_bps = rates[i] * kGig;
  const auto expected = WaterFilled(rates);
  const Candidate workers = Of(Planned(c, OneRankEach(c, rates.size(), 8)), Shape::kWorkers);
  for (const Tree& tree : workers.trees) {
    const std::string& root = c.hosts[tree.nodes[0].host].name;
    EXPECT_NEAR(tree.weight, expected.at(root), 2e-3) << root;
  }
}

// 8 : 2 between a fast and a slow server; all in all one pass of the workers is the limit at 10 Gb/s.
TEST(Weights, OfServersFollowTheirRates) {
  Cluster c = OneSwitch(10, 10 * kGig);
  c.hosts.push_back(MakeHost("a1", 8 * kGig));
  c.hosts.push_back(MakeHost("a2", 2 * kGig));
  const Candidate shards = Of(Planned(c, OneRankEach(c, 10, 8)), Shape::kShards);
  ASSERT_EQ(shards.trees.size(), 2u);
  for (const Tree& tree : shards.trees)
    EXPECT_NEAR(tree.weight, c.hosts[tree.nodes[0].host].name == "a1" ? 0.8 : 0.2, 1e-4);
  EXPECT_NEAR(InUnits(shards, 8, 10 * kGig), 10, 1e-3);  // 10 S into 10 Gb/s together
}

TEST(Choice, WithoutOtherHostsIsAllWorkers) {
  const Cluster c = OneSwitch(4, 5e8);
  const Plan plan = Planned(c, OneRankEach(c, 4, 64 << 20), {});
  EXPECT_EQ(plan.choice().shape, Shape::kWorkers);
  EXPECT_EQ(plan.choice().trees.size(), 4u);
  for (const Tree& tree : plan.choice().trees) EXPECT_NEAR(tree.weight, 0.25, 1e-9);
  EXPECT_FALSE(plan.candidates[static_cast<size_t>(Shape::kShards)].is_possible());
  EXPECT_FALSE(plan.candidates[static_cast<size_t>(Shape::kRack)].is_possible());
}

// DESIGN section 7: one aggregator wins only where its link is faster than n/2 times a worker's.
TEST(Choice, TurnsFromWorkersToTheAggregatorWithItsRate) {
  for (const auto& [times, shape] : {std::pair{1.0, Shape::kWorkers}, {2.5, Shape::kWorkers}, {3.0, Shape::kStar}}) {
    Cluster c = OneSwitch(4, kGig);  // workers take 1.5 S/B, the star 4/times
    c.hosts.push_back(MakeHost("a1", times * kGig));
    EXPECT_EQ(Planned(c, OneRankEach(c, 4, 1 << 20)).choice().shape, shape) << times;
  }
}

TEST(Choice, OfEquallyFastShapesIsTheSimplest) {
  Cluster c = OneSwitch(2, kGig);  // one pass either way
  c.hosts.push_back(MakeHost("a1", 10 * kGig));
  c.hosts.push_back(MakeHost("a2", 10 * kGig));
  EXPECT_EQ(Planned(c, OneRankEach(c, 2, 1 << 20)).choice().shape, Shape::kStar);
}

// A host at a fifth of the rate needs 5 S/B whatever the plan: 15 worker roots, the binary tree and degree 4 all take just
// that. One tree is simpler than 15, and two levels are simpler than four.
TEST(Choice, OfEquallyFastShapesHasFewTreesThenFewLevels) {
  Cluster c = OneSwitch(16, kGig);
  c.hosts[7].up_bps = c.hosts[7].down_bps = kGig / 5;
  const Plan plan = Planned(c, OneRankEach(c, 16, 1 << 20));
  for (Shape shape : {Shape::kWorkers, Shape::kBinary, Shape::kDegree})
    EXPECT_NEAR(InUnits(Of(plan, shape), 1 << 20, kGig), 5, 5e-3) << NameOf(shape);
  EXPECT_EQ(plan.choice().shape, Shape::kDegree);
}

TEST(Choice, OfTinyTensorsIsTheFewestLevels) {
  const Cluster c = Racks(4, 4, 100 * kGig, 4);
  EXPECT_EQ(Planned(c, OneRankEach(c, 16, 64), {}).choice().predicted.levels, 1);
}

TEST(Choice, CanBeAskedFor) {
  const Cluster c = OneSwitch(8, kGig);
  const auto plan = MakePlan(c, OneRankEach(c, 8, 1 << 20), Ideal(), Shape::kBinary);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->choice().shape, Shape::kBinary);
  EXPECT_NE(plan->reason.find("binary over w1 was asked for"), std::string::npos) << plan->reason;
  EXPECT_NE(plan->reason.find("workers over 8 worker hosts would take"), std::string::npos) << plan->reason;
}

TEST(Choice, OfAnImpossibleShapeIsAnError) {
  const Cluster c = OneSwitch(4, kGig);
  const auto plan = MakePlan(c, OneRankEach(c, 4, 8), Ideal(), Shape::kShards);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(plan.error().message.find("needs 2 hosts without ranks"), std::string::npos) << plan.error().message;
  EXPECT_NE(plan.error().hint.find("workers"), std::string::npos);
}

TEST(Choice, RanksOfOneHostStayThere) {
  Cluster c = OneSwitch(2, kGig);
  Job job = OneRankEach(c, 1, 1 << 20);
  job.host_of_rank = {"w1", "w1", "w1"};
  const Plan plan = Planned(c, job);
  EXPECT_EQ(plan.choice().roots, "w1");
  EXPECT_EQ(plan.choice().predicted.seconds, 0);
}

TEST(Choice, WithoutAnyRateIsByLatency) {
  const Cluster c = OneSwitch(4, 0);
  const Plan plan = Planned(c, OneRankEach(c, 4, 1 << 20), {});
  EXPECT_EQ(plan.choice().shape, Shape::kStar);
  EXPECT_NE(plan.reason.find("no link has a rate"), std::string::npos) << plan.reason;
}

TEST(Choice, OfPushNeedsAServer) {
  const Cluster c = OneSwitch(4, kGig);
  Job job = OneRankEach(c, 4, 8);
  job.traffic = Traffic::kPush;
  const auto plan = MakePlan(c, job, Ideal());
  ASSERT_FALSE(plan.has_value());
  EXPECT_NE(plan.error().message.find("without ranks"), std::string::npos) << plan.error().message;
}

TEST(Shapes, HaveNamesThatReadBack) {
  for (const std::string& name : ShapeNames()) EXPECT_EQ(NameOf(*ShapeFromName(name)), name);
  EXPECT_FALSE(ShapeFromName("ring").has_value());
}

}  // namespace
}  // namespace mlnet::plan
