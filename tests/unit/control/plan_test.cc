// SPDX-License-Identifier: Apache-2.0
// Planning: who sums, over which interface each rank goes, and every reason why not.
#include "control/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/tree.h"
#include "mlnet/wire.h"
#include "unit/control/plan_world.h"

namespace mlnet::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(plan, children_are_ranks_with_the_address_of_their_host) {
  World world;
  const auto plan = world.Make();
  ASSERT_TRUE(plan) << plan.error().ToString();
  EXPECT_EQ(NamesOfAggregators(*plan), "a1");
  EXPECT_EQ(RootOf(*plan, 0).address, "10.0.0.9");
  const auto children = ChildrenOf(*plan, 0, 0);
  ASSERT_EQ(children.size(), 3u);
  EXPECT_EQ(children[0].address, "10.0.0.1");
  EXPECT_EQ(children[1].address, "10.0.0.2");
  EXPECT_EQ(children[2].address, "10.0.0.1");
  EXPECT_EQ(plan->blocks, 11u);
  EXPECT_EQ(plan->log2_slots, 8u);
  EXPECT_EQ(plan->classes, 2u);
  EXPECT_THAT(WorkerHosts(*plan), ElementsAre("w1", "w2"));
  EXPECT_TRUE(Involves(*plan, "a1"));
  EXPECT_FALSE(Involves(*plan, "a2"));
}

TEST(plan, jobs_spread_over_the_aggregators) {
  World world;
  JobView other;
  other.job.state = kReady;
  other.job.plan.ports = {{"a1", "eth0", "10.0.0.9", ""}};
  other.job.plan.trees = {{1, {{0, -1}}}};
  world.jobs = {other};
  EXPECT_EQ(NamesOfAggregators(*world.Make()), "a2");
  world.jobs[0].job.state = kClosed;
  EXPECT_EQ(NamesOfAggregators(*world.Make()), "a1");
}

TEST(plan, no_aggregator_says_which_hosts_and_why_not) {
  World world;
  world.At("a1").heartbeat_ms = kNow - kHeartbeatStaleMs - 1;
  world.At("a2").ifaces[0].attached = false;
  const Error error = world.Refusal();
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("a1: its mlnetd is not running"));
  EXPECT_THAT(error.message, HasSubstr("a2: its aggregator interface is not attached"));
  EXPECT_THAT(error.message, HasSubstr("w1: no interface with aggregator = true"));
  EXPECT_THAT(error.hint, HasSubstr("mlnetctl iface attach"));
}

TEST(plan, stopped_full_or_occupied_aggregators_are_passed_over) {
  World world;
  world.At("a1").running = false;
  EXPECT_EQ(NamesOfAggregators(*world.Make()), "a2");
  world.At("a1").running = true;
  world.At("a1").slots_free = 767;
  EXPECT_EQ(NamesOfAggregators(*world.Make()), "a2");
  world.At("a1").slots_free = 768;
  EXPECT_EQ(NamesOfAggregators(*world.Make()), "a1");
  world.job.members[1].host = "a1";
  EXPECT_EQ(NamesOfAggregators(*world.Make()), "a2");
  world.job.members[2].host = "a2";
  EXPECT_THAT(world.Refusal().message, HasSubstr("a2: it runs rank 2 of this job"));
}

TEST(plan, shards_are_all_aggregators_that_can) {
  World world;
  for (const char* shape : {"shards", "auto"}) {
    world.job.job.spec.shape = shape;
    EXPECT_EQ(NamesOfAggregators(*world.Make()), "a1, a2") << shape;
  }
  world.At("a1").running = false;
  EXPECT_EQ(NamesOfAggregators(*world.Make()), "a2");
}

TEST(plan, without_aggregators_the_hosts_of_the_ranks_sum_for_each_other) {
  World world;
  world.job.job.spec.shape = "auto";
  world.hosts.erase(world.hosts.begin(), world.hosts.begin() + 2);
  EXPECT_THAT(world.Refusal().message, HasSubstr("w1: its own ranks cannot reach it: it has no local link"));
  for (HostRecord& host : world.hosts) host.local_address = "169.254.28.12";
  world.hosts.push_back(Host("w3", "10.0.0.3", false));
  const auto plan = world.Make();
  ASSERT_TRUE(plan) << plan.error().ToString();
  EXPECT_EQ(NamesOfAggregators(*plan), "w1, w2") << "w3 has no rank";
  EXPECT_EQ(RootOf(*plan, 1).address, "10.0.0.2");
  EXPECT_EQ(RootOf(*plan, 1).local_address, "169.254.28.12");
  EXPECT_THAT(HostsOf(*plan), ElementsAre("w1", "w2"));
  EXPECT_TRUE(IsRootOfAny(*plan, "w2"));
  world.At("w1").slots_free = 0;
  EXPECT_EQ(NamesOfAggregators(*world.Make()), "w2") << "the other can do it alone";
}

TEST(plan, workers_sum_where_the_job_asks_for_it) {
  World world;
  world.job.job.spec.shape = "workers";
  for (HostRecord& host : world.hosts) host.local_address = "169.254.28.12";
  EXPECT_EQ(NamesOfAggregators(*world.Make()), "w1, w2");
}

TEST(plan, rank_goes_by_the_interface_in_the_aggregators_network) {
  World world;
  world.At("w1").ifaces = {{"mgmt0", "192.168.0.1", 24, 1500, false, true}, {"eth1", "10.0.0.77", 24, 1500, false, true}};
  const auto plan = world.Make();
  ASSERT_TRUE(plan);
  EXPECT_EQ(PortOfHost(*plan, 0, "w1")->iface, "eth1");
  EXPECT_EQ(PortOfHost(*plan, 0, "w1")->address, "10.0.0.77");
  world.At("w1").ifaces.pop_back();
  EXPECT_EQ(PortOfHost(*world.Make(), 0, "w1")->address, "192.168.0.1") << "behind a router";
  world.At("w1").ifaces[0].attached = false;
  EXPECT_THAT(world.Refusal().message, HasSubstr("host w1 (rank 0) has no attached interface"));
}

TEST(plan, smallest_mtu_decides_and_too_small_is_refused_by_name) {
  World world;
  world.At("w2").ifaces[0].mtu = 92 + 3 * 128 + 127;
  EXPECT_EQ(world.Make()->blocks, 3u);
  world.At("w2").ifaces[0].mtu = 92 + 127;
  const Error error = world.Refusal();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("MTU 219 of eth0 on host w2"));
}

TEST(plan, blocks_follow_the_frame_layout) {
  EXPECT_EQ(BlocksPerPacket(1500, false, false), 11u);  // 1500 - 20 - 8 - 22 - 42 = 1408 = 11 * 128
  EXPECT_EQ(BlocksPerPacket(1499, false, false), 10u);
  EXPECT_EQ(BlocksPerPacket(1628, false, false), 12u);  // from here on by two: a pair of exponents covers two
  EXPECT_EQ(BlocksPerPacket(1883, false, false), 12u);
  EXPECT_EQ(BlocksPerPacket(1884, false, false), 14u);
  EXPECT_EQ(BlocksPerPacket(2908, false, false), 22u);
  EXPECT_EQ(BlocksPerPacket(MLNET_MTU_MAX, true, true), 22u);
  EXPECT_EQ(BlocksPerPacket(MLNET_MTU_MAX - 1, true, true), 20u);
  EXPECT_EQ(BlocksPerPacket(9000, false, false), 22u);
  EXPECT_EQ(BlocksPerPacket(220, false, false), 1u);
  EXPECT_EQ(BlocksPerPacket(219, false, false), 0u);
  EXPECT_EQ(BlocksPerPacket(0, false, false), 0u);
  EXPECT_EQ(BlocksPerPacket(1500, true, false), 10u);  // 20 bytes less: 1388
  EXPECT_EQ(BlocksPerPacket(1392, true, false), 10u);
  EXPECT_EQ(BlocksPerPacket(1391, true, false), 9u);
  EXPECT_EQ(BlocksPerPacket(1520, true, false), 11u);
  EXPECT_EQ(BlocksPerPacket(1500, false, true), 10u);  // 8 bytes less
  EXPECT_EQ(BlocksPerPacket(1507, false, true), 10u);
  EXPECT_EQ(BlocksPerPacket(1508, false, true), 11u);
  EXPECT_EQ(BlocksPerPacket(1500, true, true), 10u);
  EXPECT_EQ(BlocksPerPacket(1400, true, true), 10u);
  EXPECT_EQ(BlocksPerPacket(1399, true, true), 9u);
}

TEST(plan, different_data_ports_are_refused) {
  World world;
  world.At("w2").port = 1;
  EXPECT_EQ(world.Refusal().code, ErrorCode::kMismatch);
}

Addressing Groups(const std::string& group, const std::string& group6) {
  return {"auto", ParseGroupPrefix(group).value(), ParseGroupPrefix(group6).value()};
}

TEST(plan, group_is_the_prefix_and_the_job_id) {
  Plan plan;
  plan.ports = {{"w1", "eth0", "10.0.0.1", ""}};
  Number(plan, {0x0203, 7}, Groups("239.77.0.0/16", "ff15::6d6c:0/112"));
  EXPECT_EQ(plan.group, "239.77.2.3");
  EXPECT_EQ(plan.epoch, 7);
  Number(plan, {0x0203, 7}, Groups("239.1.2.0/24", "ff15::6d6c:0/112"));
  EXPECT_EQ(plan.group, "239.1.2.3");
  plan.ports[0].address = "fd77::1";
  Number(plan, {0x0203, 7}, Groups("239.77.0.0/16", "ff15::6d6c:0/112"));
  EXPECT_EQ(plan.group, "ff15::6d6c:203");
  Number(plan, {0x0203, 7}, Groups("239.77.0.0/16", "ff02::/16"));
  EXPECT_EQ(plan.group, "ff02::203");
  Number(plan, {0x0203, 7}, Groups("239.77.0.0/16", "ff15::6d6c:0/124"));
  EXPECT_EQ(plan.group, "ff15::6d6c:3");
}

TEST(plan, group_prefixes_are_of_groups_and_leave_room) {
  for (const char* wrong : {"239.77.0.0", "10.0.0.0/16", "239.77.0.0/29", "239.77.0.0/3", "ff15::/8", "ff15::/125", "fd77::/64", "ff15::/1x"}) {
    EXPECT_FALSE(ParseGroupPrefix(wrong).has_value()) << wrong;
  }
}

// What a host has besides its IPv4 address, which may be empty.
void GiveIpv6(HostRecord& host, int number) {
  host.local_address6 = "fd6d:6c6e:6574::1";
  host.ifaces[0].address6 = "fd77::" + std::to_string(number);
  host.ifaces[0].prefix6 = 64;
}

TEST(plan, ipv4_is_used_where_all_hosts_of_the_ranks_have_it) {
  World world;
  for (HostRecord& host : world.hosts) GiveIpv6(host, 1);
  EXPECT_EQ(RootOf(world.Make().value(), 0).address, "10.0.0.9");
  EXPECT_EQ(world.Make()->blocks, 11u);
}

TEST(plan, ipv6_is_used_where_one_lacks_ipv4) {
  World world;
  int number = 0;
  for (HostRecord& host : world.hosts) GiveIpv6(host, ++number);
  world.At("w2").ifaces[0].address = "";
  const auto plan = world.Make();
  ASSERT_TRUE(plan) << plan.error().ToString();
  EXPECT_TRUE(IsIpv6(*plan));
  EXPECT_EQ(RootOf(*plan, 0).address, "fd77::1");
  const auto children = ChildrenOf(*plan, 0, 0);
  EXPECT_EQ(children.back().address, "fd77::4");
  EXPECT_EQ(plan->blocks, 10u);
}

TEST(plan, a_family_that_is_set_is_used_or_refused_by_name) {
  World world;
  world.addressing.family = "ipv6";
  EXPECT_THAT(world.Refusal().message, HasSubstr("no IPv6 address on: w1, w2"));
  for (HostRecord& host : world.hosts) GiveIpv6(host, 1);
  EXPECT_TRUE(IsIpv6(world.Make().value()));
  world.addressing.family = "ipv4";
  EXPECT_FALSE(IsIpv6(world.Make().value()));
}

TEST(plan, hosts_without_a_common_family_are_named) {
  World world;
  GiveIpv6(world.At("w2"), 2);
  world.At("w2").ifaces[0].address = "";
  EXPECT_THAT(world.Refusal().message, HasSubstr("no IPv4 address on: w2; no IPv6 address on: w1"));
}

TEST(plan, with_ipv6_the_interface_is_chosen_by_its_network) {
  World world;
  int number = 0;
  for (HostRecord& host : world.hosts) GiveIpv6(host, ++number);
  world.addressing.family = "ipv6";
  IfaceRecord other = world.At("w1").ifaces[0];
  other.name = "eth1";
  other.address6 = "fd77:0:0:1::5";
  world.At("w1").ifaces.insert(world.At("w1").ifaces.begin(), other);
  const auto plan = world.Make();
  ASSERT_TRUE(plan) << plan.error().ToString();
  const auto port = std::find_if(plan->ports.begin(), plan->ports.end(), [](const auto& p) { return p.host == "w1"; });
  EXPECT_EQ(port->iface, "eth0");
}

TEST(plan, the_root_of_a_job_with_a_server_is_the_servers_host) {
  World world;
  world.job.job.spec.shape = "auto";
  world.job.job.spec.root = "server";
  world.At("a2").local_address = "169.254.28.12";
  world.job.members.push_back({1, kServerRank, "a2", 10, true, false, 0, ""});
  const auto plan = world.Make();
  ASSERT_TRUE(plan) << plan.error().ToString();
  EXPECT_EQ(plan->server_host, "a2");
  ASSERT_EQ(plan->trees.size(), 1u);
  EXPECT_EQ(RootOf(*plan, 0).host, "a2");
  EXPECT_EQ(RootOf(*plan, 0).local_address, "169.254.28.12");
  EXPECT_EQ(plan->host_of_rank.size(), 3u) << "the server is no rank";
  EXPECT_EQ(ChildrenOf(*plan, 0, 0).size(), 3u);
}

TEST(plan, the_servers_host_must_be_able_to_sum) {
  World world;
  world.job.job.spec.root = "server";
  world.job.members.push_back({1, kServerRank, "a2", 10, true, false, 0, ""});
  world.At("a2").local_address = "169.254.28.12";
  world.At("a2").slots_free = 0;
  const Error error = world.Refusal();
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("host a2 has the server of job 'demo', but cannot sum it"));
  EXPECT_THAT(error.message, HasSubstr("a2: it has 0 slots"));
}

TEST(plan, of_a_job_that_nobody_sums_has_the_hosts_of_ranks_alone) {
  World world;
  for (const char* host : {"a1", "a2"}) world.At(host).running = false;
  const PlanInput input{&world.job, &world.hosts, &world.jobs, world.addressing, kNow};
  ASSERT_FALSE(CouldBeSummed(input));
  auto plan = MakeRingPlan(input);
  ASSERT_TRUE(plan) << plan.error().ToString();
  EXPECT_TRUE(HasNobodyToSum(*plan));
  EXPECT_THAT(HostsOf(*plan), ElementsAre("w1", "w2"));
  EXPECT_EQ(plan->host_of_rank, (std::vector<std::string>{"w1", "w2", "w1"}));
  ASSERT_EQ(plan->trees.size(), 1u);
  for (const char* host : {"w1", "w2"}) {
    const auto node = FindNode(*plan, 0, host);
    ASSERT_TRUE(node);
    EXPECT_FALSE(IsSumming(*plan, 0, *node)) << host;
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(NodeOfRank(*plan, 0, rank), 0u);
  EXPECT_EQ(PortOfHost(*plan, 0, "w2")->address, "10.0.0.2");
  EXPECT_EQ(plan->blocks, 11u);
  EXPECT_EQ(plan->port, 28012);
}

TEST(plan, want_of_slots_is_not_want_of_aggregators) {
  World world;
  for (const char* host : {"a1", "a2"}) world.At(host).slots_free = 1;
  EXPECT_FALSE(world.Make());
  EXPECT_TRUE(CouldBeSummed({&world.job, &world.hosts, &world.jobs, world.addressing, kNow}));
}

}  // namespace
}  // namespace mlnet::control
