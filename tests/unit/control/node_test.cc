// SPDX-License-Identifier: Apache-2.0
// Job table entries: what the kernel reads on each host. Expected bytes are written by hand.
#include "control/node.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/plan.h"
#include "control/tree.h"

namespace mlnet::control {
namespace {

using ::testing::ElementsAre;

// IPv4 addresses are mapped.
std::string Text(const mlnet_addr& address) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, &address, text, sizeof(text));
  return std::string(text).starts_with("::ffff:") ? text + 7 : text;
}

Plan FourRanksOnTwoHosts() {
  Plan plan;
  plan.job_id = 3;
  plan.epoch = 9;
  plan.port = 28012;
  plan.ports = {{"a1", "eth0", "10.0.0.9", ""}, {"w1", "eth0", "10.0.0.1", ""}, {"w2", "eth0", "10.0.0.2", ""}};
  plan.trees = {{1, {{0, -1}, {1, 0}, {2, 0}}}};
  plan.group = "239.205.0.3";
  plan.log2_slots = 6;
  plan.classes = 2;
  plan.host_of_rank = {"w1", "w2", "w1", "w2"};
  return plan;
}

TEST(node, aggregator_knows_children_slots_and_one_copy_per_host) {
  HostIds ids;
  ids.trees = {{100, {7, 8, 9, 10}, 2, 50, 6}};
  const mlnet_node node = MakeNode(FourRanksOnTwoHosts(), 0, "a1", ids, HostMacs{}, true);
  EXPECT_EQ(node.flags, MLNET_NODE_AGGREGATE | MLNET_NODE_MULTICAST);
  EXPECT_EQ(node.epoch, 9);
  EXPECT_EQ(node.port_be, htons(28012));
  EXPECT_EQ(node.members, 0xfu);
  EXPECT_EQ(node.n_children, 4);
  EXPECT_EQ(Text(node.addr), "10.0.0.9");
  EXPECT_EQ(Text(node.child_addr[1]), "10.0.0.2");
  EXPECT_EQ(Text(node.child_addr[2]), "10.0.0.1");
  EXPECT_EQ(node.n_fan, 2);
  EXPECT_EQ(node.fan_child[0], 0);
  EXPECT_EQ(node.fan_child[1], 1);
  EXPECT_EQ(node.fan_id, 2u);
  EXPECT_EQ(node.link_base, 50u);
  EXPECT_EQ(node.stats_id, 6u);
  EXPECT_EQ(node.pools[0].slot_base, 100u);
  EXPECT_EQ(node.pools[1].slot_base, 164u);
  EXPECT_EQ(node.pools[0].words_id, 7u);
  EXPECT_EQ(node.pools[1].words_id, 8u);
  EXPECT_EQ(node.pools[0].log2_slots, 6);
  EXPECT_TRUE(node.pools[1].is_open);
  EXPECT_FALSE(node.pools[2].is_open);
  // The fix-up streams come behind the classes; with more than 128 slots they would be smaller.
  EXPECT_EQ(node.pools[8].slot_base, 228u);
  EXPECT_EQ(node.pools[9].slot_base, 292u);
  EXPECT_EQ(node.pools[9].words_id, 10u);
  EXPECT_EQ(node.pools[8].log2_slots, 6);
  EXPECT_TRUE(node.pools[9].is_open);
  EXPECT_FALSE(node.pools[10].is_open);
  EXPECT_EQ(Text(node.group), "239.205.0.3");
  EXPECT_THAT(node.group_mac, ElementsAre(0x01, 0x00, 0x5e, 0x4d, 0x00, 0x03));
}

TEST(node, worker_host_knows_its_ranks_and_where_results_go) {
  HostIds ids;
  ids.inbox = 4;
  ids.rings = {11, 12};
  ids.trees.resize(1);
  const Plan plan = FourRanksOnTwoHosts();
  const mlnet_node node = MakeNode(plan, 0, "w2", ids, HostMacs{}, false);
  EXPECT_EQ(node.flags, MLNET_NODE_DELIVER);
  EXPECT_EQ(Text(node.parent), "10.0.0.9");
  EXPECT_EQ(node.inbox_id, 4u);
  EXPECT_EQ(node.n_local, 2);
  EXPECT_EQ(node.child_local[0], 0);
  EXPECT_EQ(node.child_local[1], 1);
  EXPECT_EQ(node.child_local[3], 2);
  EXPECT_EQ(node.local_ring[0], 11u);
  EXPECT_EQ(node.local_ring[1], 12u);
  EXPECT_EQ(node.pools[1].cell_base, 128u);
  EXPECT_EQ(node.pools[9].cell_base, 384u);
  EXPECT_EQ(node.fan_id, 0u);
  EXPECT_EQ(node.n_fan, 0);
  EXPECT_EQ(InboxCells(plan), 512u);
  EXPECT_THAT(LocalRanks(plan, "w2"), ElementsAre(1, 3));
  EXPECT_TRUE(LocalRanks(plan, "a1").empty());
}

TEST(node, a_host_of_ranks_that_sums_is_reached_by_its_local_address) {
  Plan plan = FourRanksOnTwoHosts();
  plan.ports[2].local_address = "169.254.28.12";
  plan.trees = {{1, {{0, -1}, {1, 0}, {2, 0}}}, {1, {{2, -1}, {1, 0}}}};
  plan.host_of_rank = {"w1", "w2", "w1", "w1"};
  HostIds ids;
  ids.inbox = 4;
  ids.rings = {11, 12};
  ids.trees = {{0, {}, 0, 0, 5}, {100, {7, 8, 9, 10}, 3, 50, 6}};
  const HostMacs macs{{2, 0, 0, 0, 0, 9}, {}};
  const mlnet_node root = MakeNode(plan, 1, "w2", ids, macs, false);
  EXPECT_EQ(root.flags, MLNET_NODE_AGGREGATE | MLNET_NODE_DELIVER);
  EXPECT_EQ(Text(root.addr), "10.0.0.2");
  EXPECT_EQ(Text(root.local), "169.254.28.12");
  EXPECT_EQ(Text(root.parent), Text(root.local));
  EXPECT_EQ(root.n_fan, 1) << "a copy for w1 alone: the own ranks have it in their inbox";
  EXPECT_EQ(root.fan_child[0], 0);
  EXPECT_THAT(root.nic_mac, ElementsAre(2, 0, 0, 0, 0, 9));
  EXPECT_EQ(root.stats_id, 6u);
  // The second tree's cells come behind those of the first: 2 * (2 * 64 + 2 * 64).
  EXPECT_EQ(root.pools[0].cell_base, 512u);
  EXPECT_EQ(InboxCells(plan), 1024u);
  const mlnet_node leaf = MakeNode(plan, 0, "w2", ids, macs, false);
  EXPECT_EQ(leaf.flags, MLNET_NODE_DELIVER);
  EXPECT_EQ(Text(leaf.parent), "10.0.0.9");
  EXPECT_EQ(Text(leaf.local), "::") << "none";
  ids.trees[1] = {0, {}, 0, 0, 5};
  EXPECT_EQ(Text(MakeNode(plan, 1, "w1", ids, macs, false).parent), "10.0.0.2");
}

TEST(node, several_ranks_of_a_host_are_one_child_of_the_root) {
  Plan plan = FourRanksOnTwoHosts();
  for (size_t p = 1; p < plan.ports.size(); ++p) plan.ports[p].local_address = "169.254.28.12";
  plan.ports.push_back({"w3", "eth0", "10.0.0.3", "169.254.28.12"});
  plan.trees[0].nodes.push_back({3, 0});
  plan.host_of_rank.push_back("w3");
  HostIds ids;
  ids.inbox = 4;
  ids.rings = {11, 12};
  ids.trees = {{100, {7, 8, 9, 10}, 3, 50, 6}};
  const HostMacs macs{{2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0, 9}};
  const mlnet_node root = MakeNode(plan, 0, "a1", ids, macs, true);
  EXPECT_EQ(root.n_children, 3);
  EXPECT_EQ(root.members, 7u);
  EXPECT_EQ(Text(root.child_addr[1]), "10.0.0.2");
  EXPECT_EQ(Text(root.child_addr[2]), "10.0.0.3");
  EXPECT_EQ(root.n_fan, 3);
  const mlnet_node inner = MakeNode(plan, 0, "w2", ids, macs, false);
  EXPECT_EQ(inner.flags, MLNET_NODE_AGGREGATE | MLNET_NODE_INNER | MLNET_NODE_DELIVER);
  EXPECT_EQ(inner.n_children, 2);
  EXPECT_EQ(inner.members, 3u);
  EXPECT_EQ(Text(inner.addr), "10.0.0.2");
  EXPECT_EQ(Text(inner.local), "169.254.28.12");
  EXPECT_EQ(Text(inner.parent), Text(inner.local));
  EXPECT_EQ(Text(inner.up), "10.0.0.9");
  EXPECT_EQ(Text(inner.root), Text(inner.up));
  EXPECT_EQ(inner.up_child, 1);
  EXPECT_THAT(inner.up_mac, ElementsAre(2, 0, 0, 0, 0, 9));
  EXPECT_THAT(inner.nic_mac, ElementsAre(2, 0, 0, 0, 0, 2));
  EXPECT_EQ(inner.n_fan, 0);
  // Ranks 1 and 3 are its children 0 and 1, and its local ranks 0 and 1.
  EXPECT_EQ(inner.child_local[0], 1);
  EXPECT_EQ(inner.child_local[1], 2);
  EXPECT_EQ(ChildIndexOf(plan, 0, 3), 1);
  const mlnet_node lone = MakeNode(plan, 0, "w3", {4, {11}, ids.trees}, macs, false);
  EXPECT_EQ(lone.flags, MLNET_NODE_DELIVER);
  EXPECT_EQ(Text(lone.parent), "10.0.0.9");
  EXPECT_EQ(lone.child_local[2], 1) << "the third child of the root";
}

TEST(node, head_of_a_rack_passes_results_on_to_the_hosts_below) {
  Plan plan = FourRanksOnTwoHosts();
  plan.ports.push_back({"h", "eth0", "10.0.0.7", ""});
  plan.trees = {{1, {{0, -1}, {3, 0}, {1, 1}, {2, 1}}}};
  HostIds ids;
  ids.trees = {{100, {7, 8, 9, 10}, 3, 50, 6}};
  const HostMacs macs{{2, 0, 0, 0, 0, 7}, {2, 0, 0, 0, 0, 9}};
  const mlnet_node head = MakeNode(plan, 0, "h", ids, macs, /*multicast=*/true);
  EXPECT_EQ(head.flags, MLNET_NODE_AGGREGATE | MLNET_NODE_INNER) << "only roots send by multicast";
  EXPECT_EQ(head.n_children, 4);
  EXPECT_EQ(Text(head.child_addr[3]), "10.0.0.2");
  EXPECT_EQ(head.n_fan, 2);
  EXPECT_EQ(Text(head.up), "10.0.0.9");
  EXPECT_EQ(head.up_child, 0);
  EXPECT_EQ(Text(head.local), "::");
  const mlnet_node root = MakeNode(plan, 0, "a1", ids, macs, true);
  EXPECT_EQ(root.n_children, 1);
  EXPECT_EQ(Text(root.child_addr[0]), "10.0.0.7");
  EXPECT_EQ(root.n_fan, 1);
  const mlnet_node leaf = MakeNode(plan, 0, "w2", {4, {11, 12}, {TreeIds{}}}, macs, true);
  EXPECT_EQ(leaf.flags, MLNET_NODE_DELIVER);
  EXPECT_EQ(Text(leaf.parent), "10.0.0.7");
  EXPECT_EQ(Text(leaf.root), "10.0.0.9");
  EXPECT_EQ(leaf.child_local[3], 2);
}

TEST(node, an_ipv6_plan_has_whole_addresses_and_the_link_address_of_its_group) {
  Plan plan = FourRanksOnTwoHosts();
  plan.ports = {{"w1", "eth0", "fd77::1", ""}, {"w2", "eth0", "fd77:1:2:3:4:5:6:7", "fd00:6d6c::1"}};
  plan.trees = {{1, {{1, -1}, {0, 0}}}};
  plan.group = "ff15::6d6c:3";
  HostIds ids;
  ids.inbox = 4;
  ids.rings = {11, 12};
  ids.trees = {{100, {7, 8, 9, 10}, 2, 50, 6}};
  const mlnet_node root = MakeNode(plan, 0, "w2", ids, HostMacs{}, true);
  EXPECT_EQ(root.flags, MLNET_NODE_AGGREGATE | MLNET_NODE_DELIVER | MLNET_NODE_MULTICAST | MLNET_NODE_IPV6);
  EXPECT_EQ(Text(root.addr), "fd77:1:2:3:4:5:6:7");
  EXPECT_EQ(Text(root.local), "fd00:6d6c::1");
  EXPECT_EQ(Text(root.parent), "fd00:6d6c::1");
  EXPECT_EQ(Text(root.child_addr[0]), "fd77::1");
  EXPECT_EQ(Text(root.child_addr[1]), "fd77:1:2:3:4:5:6:7");
  EXPECT_EQ(Text(root.group), "ff15::6d6c:3");
  EXPECT_THAT(root.group_mac, ElementsAre(0x33, 0x33, 0x6d, 0x6c, 0x00, 0x03));
  EXPECT_EQ(MakeNode(plan, 0, "w1", ids, HostMacs{}, true).flags, MLNET_NODE_DELIVER | MLNET_NODE_IPV6);
  EXPECT_EQ(MakeNode(plan, 0, "none", ids, HostMacs{}, true).flags, 0);
}

TEST(node, sixty_four_children_fill_the_member_word) {
  Plan plan = FourRanksOnTwoHosts();
  while (plan.host_of_rank.size() < 64) plan.host_of_rank.push_back("w1");
  HostIds ids;
  ids.trees.resize(1);
  ids.trees[0].words = {7, 8, 9, 10};
  EXPECT_EQ(MakeNode(plan, 0, "a1", ids, HostMacs{}, false).members, ~uint64_t{0});
  EXPECT_EQ(MakeNode(plan, 0, "none", ids, HostMacs{}, false).flags, 0);
}

TEST(node, the_root_of_a_job_with_a_server_gives_it_cells_of_its_own) {
  Plan plan = FourRanksOnTwoHosts();
  plan.server_host = "a1";
  plan.ports[0].local_address = "169.254.28.12";
  HostIds ids;
  ids.trees = {{100, {7, 8, 9, 10}, 2, 50, 6}};
  ids.server_inbox = 33;
  ids.server_ring = 44;
  const mlnet_node node = MakeNode(plan, 0, "a1", ids, HostMacs{}, true);
  EXPECT_EQ(node.flags, MLNET_NODE_AGGREGATE | MLNET_NODE_MULTICAST | MLNET_NODE_SERVER);
  EXPECT_EQ(node.server_inbox_id, 33u);
  EXPECT_EQ(node.server_ring_id, 44u);
  EXPECT_EQ(Text(node.local), "169.254.28.12") << "where its answers go";
  EXPECT_GT(node.forward_ns, 0u);
  ids.trees = {TreeIds{}};
  ids.rings = {11, 12};
  EXPECT_EQ(MakeNode(plan, 0, "w1", ids, HostMacs{}, true).flags & MLNET_NODE_SERVER, 0);
}

// After a restart the entry is all that is known of the ids; the same ids must give the same entry.
TEST(node, entry_names_the_ids_that_it_was_made_of) {
  const Plan plan = FourRanksOnTwoHosts();
  HostIds summing;
  summing.trees = {{100, {7, 8, 9, 10}, 2, 50, 6}};
  const std::vector<mlnet_node> root = {MakeNode(plan, 0, "a1", summing, HostMacs{}, true)};
  const HostIds there = IdsIn(plan, "a1", root);
  ASSERT_EQ(there.trees.size(), 1u);
  EXPECT_EQ(there.trees[0].slot_base, 100u);
  EXPECT_THAT(there.trees[0].words, ElementsAre(7, 8, 9, 10));
  EXPECT_EQ(there.trees[0].fan, 2u);
  EXPECT_EQ(there.trees[0].link_base, 50u);
  EXPECT_EQ(there.trees[0].stats, 6u);
  EXPECT_EQ(there.inbox, 0u);
  EXPECT_TRUE(IsSameNode(root[0], MakeNode(plan, 0, "a1", there, HostMacs{}, true)));

  HostIds worker;
  worker.inbox = 4;
  worker.rings = {21, 23};
  worker.trees = {{0, {}, 0, 0, 8}};
  const std::vector<mlnet_node> leaf = {MakeNode(plan, 0, "w1", worker, HostMacs{}, true)};
  const HostIds of_leaf = IdsIn(plan, "w1", leaf);
  EXPECT_EQ(of_leaf.inbox, 4u);
  EXPECT_EQ(of_leaf.trees[0].stats, 8u);
  EXPECT_TRUE(IsSameNode(leaf[0], MakeNode(plan, 0, "w1", of_leaf, HostMacs{}, true)));
}

TEST(node, entry_of_another_plan_is_known_by_any_difference_that_matters) {
  const Plan plan = FourRanksOnTwoHosts();
  HostIds ids;
  ids.trees = {{100, {7, 8, 9, 10}, 2, 50, 6}};
  const mlnet_node wanted = MakeNode(plan, 0, "a1", ids, HostMacs{}, true);
  mlnet_node there = wanted;
  there.nic_mac[3] = 7;
  there.up_mac[0] = 9;
  there.marks[2].tos = 0x20;
  there.uid = 1000;
  there.forward_ns = 77;
  there.flags |= MLNET_NODE_TRACE;
  EXPECT_TRUE(IsSameNode(there, wanted)) << "what changes while a job runs";
  const auto differs = [&](auto change) {
    mlnet_node other = there;
    change(other);
    return !IsSameNode(other, wanted);
  };
  EXPECT_TRUE(differs([](mlnet_node& n) { ++n.epoch; }));
  EXPECT_TRUE(differs([](mlnet_node& n) { n.flags &= static_cast<uint8_t>(~MLNET_NODE_MULTICAST); }));
  EXPECT_TRUE(differs([](mlnet_node& n) { ++n.n_children; }));
  EXPECT_TRUE(differs([](mlnet_node& n) { n.members >>= 1; }));
  EXPECT_TRUE(differs([](mlnet_node& n) { n.child_addr[1].be[3] ^= 1; }));
  EXPECT_TRUE(differs([](mlnet_node& n) { ++n.pools[0].log2_slots; }));
}

}  // namespace
}  // namespace mlnet::control
