// SPDX-License-Identifier: Apache-2.0
// The form of the trees: who leads, how many children, how deep.
#include "plan/trees.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "unit/plan/clusters.h"

namespace mlnet::plan {
namespace {

size_t MostChildren(const Tree& tree) {
  size_t most = 0;
  for (const Node& node : tree.nodes) most = std::max(most, node.children.size());
  return most;
}

// The host is in the tree and nobody is below it.
bool IsLeaf(const Cluster& c, const Tree& tree, const std::string& host) {
  return std::any_of(tree.nodes.begin(), tree.nodes.end(),
                     [&](const Node& n) { return c.hosts[n.host].name == host && n.children.empty(); });
}

TEST(Trees, BinaryHasTwoChildrenAndLogarithmicDepth) {
  const Cluster c = OneSwitch(15, kGig);
  const Candidate binary = Of(Planned(c, OneRankEach(c, 15, 8)), Shape::kBinary);
  ASSERT_EQ(binary.trees.size(), 1u);
  EXPECT_EQ(MostChildren(binary.trees[0]), 2u);
  EXPECT_EQ(binary.predicted.levels, 3);  // 15 = 1 + 2 + 4 + 8
}

TEST(Trees, DegreeIsAKnob) {
  const Cluster c = OneSwitch(21, kGig);
  Settings settings = Ideal();
  settings.degree = 4;
  const Candidate degree = Of(Planned(c, OneRankEach(c, 21, 8), settings), Shape::kDegree);
  EXPECT_EQ(MostChildren(degree.trees[0]), 4u);
  EXPECT_EQ(degree.predicted.levels, 2);  // 21 = 1 + 4 + 16
}

// R4: a slow link leads nobody, wherever it stands in the list.
TEST(Trees, SlowHostsAreLeaves) {
  for (size_t slow = 0; slow < 7; ++slow) {
    Cluster c = OneSwitch(7, kGig);
    c.hosts[slow].up_bps = c.hosts[slow].down_bps = kGig / 10;
    const Plan plan = Planned(c, OneRankEach(c, 7, 8));
    for (Shape shape : {Shape::kStar, Shape::kWorkers, Shape::kBinary, Shape::kDegree}) {
      for (const Tree& tree : Of(plan, shape).trees)
        EXPECT_TRUE(IsLeaf(c, tree, c.hosts[slow].name)) << NameOf(shape) << " " << c.hosts[slow].name;
    }
  }
}

TEST(Trees, ASlowHostNeverLeadsItsRack) {
  Cluster c = Racks(3, 4, kGig, 4);
  c.hosts[5].up_bps = kGig / 4;  // one direction is enough
  const Plan plan = Planned(c, OneRankEach(c, 12, 8));
  for (Shape shape : {Shape::kRack, Shape::kRackShards, Shape::kBinary}) {
    for (const Tree& tree : Of(plan, shape).trees) EXPECT_TRUE(IsLeaf(c, tree, "r2h2")) << NameOf(shape);
  }
}

TEST(Trees, HostsThatCannotAggregateAreLeaves) {
  Cluster c = OneSwitch(5, kGig);
  c.hosts[0].can_aggregate = c.hosts[3].can_aggregate = false;
  const Plan plan = Planned(c, OneRankEach(c, 5, 8));
  for (const Candidate& candidate : plan.candidates) {
    for (const Tree& tree : candidate.trees) {
      EXPECT_TRUE(IsLeaf(c, tree, "w1") && IsLeaf(c, tree, "w4")) << NameOf(candidate.shape);
    }
  }
  EXPECT_EQ(Of(plan, Shape::kWorkers).trees.size(), 3u);
}

// One partial sum per rack crosses the core; every fast host of a rack leads it in turn.
TEST(Trees, RackShardsSpreadRootsAndHeads) {
  const Cluster c = Racks(4, 4, kGig, 4);
  const Candidate spread = Of(Planned(c, OneRankEach(c, 16, 8)), Shape::kRackShards);
  ASSERT_EQ(spread.trees.size(), 16u);
  std::vector<double> root_weight(16), head_weight(16);
  for (const Tree& tree : spread.trees) {
    EXPECT_NEAR(tree.weight, 1 / 16.0, 1e-6);
    root_weight[tree.nodes[0].host] += tree.weight;
    EXPECT_EQ(tree.nodes[0].children.size(), 6u);  // three heads, three of its own rack
    for (const Node& node : tree.nodes) {
      if (node.parent == 0 && !node.children.empty()) head_weight[node.host] += tree.weight;
    }
  }
  for (size_t h = 0; h < 16; ++h) {
    EXPECT_NEAR(root_weight[h], 1 / 16.0, 1e-6);
    EXPECT_NEAR(head_weight[h], 3 / 16.0, 1e-6);
  }
}

TEST(Trees, AHostWithoutRanksLeadsItsRackAndIsTheRoot) {
  Cluster c = Racks(2, 3, kGig, 4);
  c.hosts.push_back(MakeHost("a1", 10 * kGig, "r1"));
  c.hosts.push_back(MakeHost("a2", 10 * kGig, "r2"));
  const Candidate rack = Of(Planned(c, OneRankEach(c, 6, 8)), Shape::kRack);
  ASSERT_EQ(rack.trees.size(), 2u);
  for (const Tree& tree : rack.trees) {
    EXPECT_GE(tree.nodes[0].host, 6u);
    EXPECT_EQ(tree.nodes.size(), 8u);
    EXPECT_EQ(tree.nodes[0].children.size(), 4u);  // three workers of its rack and the other rack's aggregator
  }
}

// Found by the property test: the rack's own workers cannot lead it, a host without ranks can.
TEST(Trees, ARackWhoseWorkersCannotAggregateIsLedByItsSpareHost) {
  Cluster c = Racks(2, 2, kGig, 4);
  c.hosts[0].can_aggregate = c.hosts[1].can_aggregate = false;
  c.hosts.push_back(MakeHost("a1", kGig, "r1"));
  const Candidate spread = Of(Planned(c, OneRankEach(c, 4, 8)), Shape::kRackShards);
  for (const Tree& tree : spread.trees) EXPECT_FALSE(IsLeaf(c, tree, "a1"));
}

TEST(Trees, WorldsBeyond64ChildrenGetDepth) {
  Cluster c = OneSwitch(201, kGig);
  Job job = OneRankEach(c, 200, 8);  // w201 is the host without ranks
  const auto rest = job.host_of_rank;
  job.host_of_rank.insert(job.host_of_rank.end(), rest.begin(), rest.end());  // two ranks on each: 400
  const Plan plan = Planned(c, job);
  for (Shape shape : {Shape::kStar, Shape::kWorkers, Shape::kBinary}) {
    for (const Tree& tree : Of(plan, shape).trees) {
      size_t hosts_with_ranks = 0;
      for (const Node& node : tree.nodes) {
        const size_t ranks = node.host < 200 ? 2 : 0;
        hosts_with_ranks += ranks > 0;
        EXPECT_LE(node.children.size() + ranks, 64u) << NameOf(shape);
      }
      EXPECT_EQ(hosts_with_ranks, 200u);
    }
  }
  EXPECT_EQ(Of(plan, Shape::kStar).predicted.levels, 3);  // own host, group, root
  EXPECT_LE(Of(plan, Shape::kWorkers).trees.size(), 64u);
}

TEST(Trees, WhereNobodyMayLeadDepthIsImpossible) {
  Cluster c = OneSwitch(71, kGig);
  for (size_t h = 0; h < 70; ++h) c.hosts[h].can_aggregate = false;
  const auto plan = MakePlan(c, OneRankEach(c, 70, 8), Ideal());
  ASSERT_FALSE(plan.has_value());
  EXPECT_NE(plan.error().message.find("70 hosts are too many below w71"), std::string::npos) << plan.error().message;
}

}  // namespace
}  // namespace mlnet::plan
