// SPDX-License-Identifier: Apache-2.0
// One tree read: three levels, drawn by hand.
//
//   a (no ranks)
//   |- h1: ranks 0, 3 ---- w2: rank 1
//   |                 \--- w3: ranks 2, 5 (local link: one child)
//   \- w4: ranks 4, 6 (no local link: two children)
#include "control/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mlnet::control {
namespace {

using ::testing::ElementsAre;

Plan ThreeLevels() {
  Plan plan;
  plan.ports = {{"a", "eth0", "10.0.0.9", "169.254.28.12"}, {"h1", "eth0", "10.0.0.1", "169.254.28.12"},
                {"w2", "eth0", "10.0.0.2", "169.254.28.12"}, {"w3", "eth0", "10.0.0.3", "169.254.28.12"},
                {"w4", "eth0", "10.0.0.4", ""}};
  plan.trees = {{1, {{0, -1}, {4, 0}, {1, 0}, {2, 2}, {3, 2}}}};
  plan.host_of_rank = {"h1", "w2", "w3", "h1", "w4", "w3", "w4"};
  return plan;
}

TEST(tree, children_are_ranks_or_the_nodes_of_hosts_by_their_first_rank) {
  const Plan plan = ThreeLevels();
  const auto at_root = ChildrenOf(plan, 0, 0);
  ASSERT_EQ(at_root.size(), 3u);
  EXPECT_THAT(at_root[0].ranks, ElementsAre(0, 1, 2, 3, 5));
  EXPECT_EQ(at_root[0].address, "10.0.0.1");
  EXPECT_THAT(at_root[1].ranks, ElementsAre(4));
  EXPECT_THAT(at_root[2].ranks, ElementsAre(6));
  const auto at_head = ChildrenOf(plan, 0, 2);
  ASSERT_EQ(at_head.size(), 4u);
  EXPECT_THAT(at_head[0].ranks, ElementsAre(0));
  EXPECT_THAT(at_head[1].ranks, ElementsAre(1));
  EXPECT_THAT(at_head[2].ranks, ElementsAre(2, 5));
  EXPECT_EQ(at_head[2].address, "10.0.0.3");
  EXPECT_THAT(at_head[3].ranks, ElementsAre(3));
  EXPECT_EQ(at_head[3].host, "h1");
}

TEST(tree, results_go_once_to_each_other_host_below) {
  const Plan plan = ThreeLevels();
  EXPECT_THAT(FanOf(plan, 0, 0), ElementsAre(0u, 1u)) << "the second rank of w4 reads the same inbox";
  EXPECT_THAT(FanOf(plan, 0, 2), ElementsAre(1u, 2u)) << "not to itself";
  EXPECT_TRUE(FanOf(plan, 0, 4).empty());
}

TEST(tree, who_sums_and_who_sends_where) {
  const Plan plan = ThreeLevels();
  EXPECT_TRUE(IsSumming(plan, 0, 0));
  EXPECT_FALSE(IsInner(plan, 0, "a"));
  EXPECT_TRUE(IsInner(plan, 0, "h1"));
  EXPECT_FALSE(IsInner(plan, 0, "w2"));
  EXPECT_TRUE(IsInner(plan, 0, "w3"));
  EXPECT_FALSE(IsInner(plan, 0, "w4"));
  EXPECT_FALSE(IsInner(plan, 0, "w5"));
  EXPECT_EQ(NodeOfRank(plan, 0, 3), 2u);
  EXPECT_EQ(NodeOfRank(plan, 0, 1), 2u);
  EXPECT_EQ(NodeOfRank(plan, 0, 5), 4u);
  EXPECT_EQ(NodeOfRank(plan, 0, 6), 0u);
  EXPECT_EQ(ChildIndexOf(plan, 0, 3), 3);
  EXPECT_EQ(ChildIndexOf(plan, 0, 5), 1);
  EXPECT_EQ(ChildIndexOf(plan, 0, 6), 2);
  EXPECT_EQ(IndexAbove(plan, 0, 2), 0);
  EXPECT_EQ(IndexAbove(plan, 0, 4), 2);
  EXPECT_EQ(PortOfHost(plan, 0, "w3")->address, "10.0.0.3");
  EXPECT_EQ(PortOfHost(plan, 0, "w5"), nullptr);
}

}  // namespace
}  // namespace mlnet::control
