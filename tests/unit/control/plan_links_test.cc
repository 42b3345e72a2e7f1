// SPDX-License-Identifier: Apache-2.0
// Planning by links: racks, their rates, and hosts with several NICs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "control/tree.h"
#include "unit/control/plan_world.h"

namespace mlnet::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const HostRecord& FindHostByName(const std::vector<HostRecord>& hosts, const std::string& name) {
  return *std::find_if(hosts.begin(), hosts.end(), [&](const auto& h) { return h.host == name; });
}

/// `racks` of `per_rack` hosts of one rank each, all links at `mbit`.
World RackWorld(int racks, int per_rack, uint64_t mbit) {
  World world;
  world.hosts.clear();
  world.job.members.clear();
  world.job.job.spec.shape = "auto";
  for (int h = 0; h < racks * per_rack; ++h) {
    HostRecord host = Host("w" + std::to_string(h), "10.0.1." + std::to_string(h + 1), false);
    host.local_address = "169.254.28.12";
    host.slots_free = 65536;
    host.rack = "r" + std::to_string(h / per_rack);
    host.oversubscription = 4;
    host.ifaces[0].rate_bps = mbit * 1'000'000;
    world.hosts.push_back(host);
    world.job.members.push_back({1, h, host.host, 100 + h, true, false, 0, ""});
  }
  world.job.job.world_size = racks * per_rack;
  return world;
}

TEST(plan, racks_are_summed_before_the_core) {
  World world = RackWorld(4, 4, 100);
  const auto plan = world.Make();
  ASSERT_TRUE(plan) << plan.error().ToString();
  EXPECT_EQ(plan->shape, "rack-shards") << plan->why;
  EXPECT_GT(plan->trees.size(), 1u);
  for (size_t t = 0; t < plan->trees.size(); ++t) {
    ASSERT_EQ(plan->trees[t].nodes.size(), 16u);
    int over_core = 0;  // one partial sum per rack but the root's
    for (size_t n = 1; n < 16; ++n) {
      const auto rack_of = [&](size_t node) { return FindHostByName(world.hosts, PortOf(*plan, t, node).host).rack; };
      over_core += rack_of(n) != rack_of(NodeAbove(*plan, t, n)) ? 1 : 0;
    }
    EXPECT_EQ(over_core, 3) << "tree " << t;
  }
}

TEST(plan, without_rates_racks_alone_are_enough) {
  World world = RackWorld(4, 4, 0);
  const auto plan = world.Make();
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->shape, "rack-shards");
  for (HostRecord& host : world.hosts) host.rack.clear();
  EXPECT_EQ(world.Make()->shape, "workers");
  EXPECT_THAT(world.Make()->why, HasSubstr("rates of the links are not known"));
}

TEST(plan, slow_hosts_carry_less) {
  World world = RackWorld(1, 4, 1000);
  world.hosts[3].ifaces[0].rate_bps = 700'000'000;
  const auto plan = world.Make();
  ASSERT_TRUE(plan);
  std::vector<uint32_t> weights(4, 0);
  for (size_t t = 0; t < plan->trees.size(); ++t) weights[static_cast<size_t>(RootOf(*plan, t).host[1] - '0')] = plan->trees[t].weight;
  EXPECT_EQ(weights[0], 1000u);
  EXPECT_EQ(weights[1], 1000u);
  // 1 + w (n - 2) <= v rate for each, the weights fill 1: v = 6 / 3.7, so 0.0676 to 0.3108.
  EXPECT_NEAR(weights[3], 217, 3);
}

TEST(plan, known_rates_choose_between_an_aggregator_and_the_workers) {
  World world = RackWorld(1, 4, 500);
  world.hosts.push_back(Host("a1", "10.0.1.99", true));
  world.hosts.back().rack = "r0";
  world.hosts.back().ifaces[0].rate_bps = 2'000'000'000;
  EXPECT_EQ(world.Make()->shape, "star");
  EXPECT_EQ(NamesOfAggregators(*world.Make()), "a1");
  world.hosts.back().ifaces[0].rate_bps = 500'000'000;
  EXPECT_EQ(world.Make()->shape, "workers") << "a star on it would take 8/3 as long";
  world.hosts.back().ifaces[0].rate_bps = 0;
  EXPECT_EQ(world.Make()->shape, "star") << "half the rates are none";
}

TEST(plan, few_slots_are_few_trees) {
  World world = RackWorld(4, 4, 500);
  EXPECT_EQ(world.Make()->trees.size(), 16u);
  for (HostRecord& host : world.hosts) host.slots_free = 768 * 2;
  const auto plan = world.Make();
  ASSERT_TRUE(plan) << plan.error().ToString();
  EXPECT_LT(plan->trees.size(), 16u);
  for (const HostRecord& host : world.hosts) {
    int sums = 0;
    for (size_t t = 0; t < plan->trees.size(); ++t) sums += IsSumming(*plan, t, *FindNode(*plan, t, host.host)) ? 1 : 0;
    EXPECT_LE(sums, 2) << host.host;
  }
}

// Four hosts of ranks with a NIC in each of two networks.
struct TwoRails : World {
  TwoRails() {
    hosts.clear();
    job.job.spec.shape = "workers";
    job.members.clear();
    for (int h = 1; h <= 4; ++h) {
      const std::string n = std::to_string(h);
      HostRecord host = Host("w" + n, "10.77.0." + n, false);
      host.local_address = "169.254.28.12";
      host.ifaces[0].rate_bps = 10'000'000'000;
      host.ifaces.push_back({"eth1", "10.78.0." + n, 24, 1500, false, true, 10'000'000'000});
      hosts.push_back(host);
      job.members.push_back({1, h - 1, "w" + n, h, true, false, 0, ""});
    }
    job.job.world_size = 4;
  }
  // Trees and their weights by the interface that all of a tree's hosts use.
  std::map<std::string, std::vector<uint32_t>> WeightsByIface() {
    std::map<std::string, std::vector<uint32_t>> weights;
    const auto plan = Make();
    EXPECT_TRUE(plan) << plan.error().ToString();
    for (size_t t = 0; plan && t < plan->trees.size(); ++t) {
      const std::string iface = RootOf(*plan, t).iface;
      weights[iface].push_back(plan->trees[t].weight);
      for (size_t n = 0; n < plan->trees[t].nodes.size(); ++n) {
        EXPECT_EQ(PortOf(*plan, t, n).iface, iface);
        EXPECT_EQ(PortOf(*plan, t, n).address.substr(0, 6), iface == "eth0" ? "10.77." : "10.78.");
      }
    }
    return weights;
  }
};

TEST(plan, several_nics_per_host_are_several_paths) {
  TwoRails world;
  const auto weights = world.WeightsByIface();
  EXPECT_THAT(weights.at("eth0"), ElementsAre(1000, 1000, 1000, 1000));
  EXPECT_THAT(weights.at("eth1"), ElementsAre(1000, 1000, 1000, 1000));
  EXPECT_THAT(world.Make()->why, HasSubstr("2 NICs per host"));
}

TEST(plan, the_slowest_nic_of_a_network_weighs_it) {
  TwoRails world;
  world.At("w3").ifaces[1].rate_bps = 5'000'000'000;
  auto weights = world.WeightsByIface();
  EXPECT_THAT(weights.at("eth0"), ElementsAre(1000, 1000, 1000, 1000));
  const auto& second = weights.at("eth1");
  EXPECT_NEAR(std::accumulate(second.begin(), second.end(), 0.0), 2000, 4) << "half as much";
  const auto plan = world.Make();
  for (size_t t = 4; t < plan->trees.size(); ++t) {
    if (RootOf(*plan, t).host != "w3") continue;
    EXPECT_EQ(plan->trees[t].weight, *std::min_element(second.begin(), second.end()));
  }
  world.At("w3").ifaces[1].rate_bps = 0;  // then nothing is known
  EXPECT_THAT(world.WeightsByIface().at("eth1"), ElementsAre(1000, 1000, 1000, 1000));
}

TEST(plan, a_network_that_a_host_is_not_in_is_not_used) {
  TwoRails world;
  world.At("w3").ifaces[1].attached = false;
  EXPECT_EQ(world.WeightsByIface().count("eth1"), 0u);
  world.At("w3").ifaces[1].attached = true;
  world.At("w3").ifaces[1].address = "10.79.0.3";
  EXPECT_EQ(world.WeightsByIface().count("eth1"), 0u);
}

TEST(plan, two_nics_in_one_network_are_one_path) {
  TwoRails world;
  for (HostRecord& host : world.hosts) host.ifaces[1].address = "10.77.0.1" + host.host.substr(1);
  EXPECT_EQ(world.WeightsByIface().count("eth1"), 0u);
}

TEST(plan, names_of_nics_may_differ) {
  TwoRails world;
  std::swap(world.At("w2").ifaces[0].name, world.At("w2").ifaces[1].name);
  const auto plan = world.Make();
  ASSERT_TRUE(plan) << plan.error().ToString();
  for (size_t t = 0; t < plan->trees.size(); ++t) {
    for (size_t n = 0; n < plan->trees[t].nodes.size(); ++n) {
      EXPECT_EQ(PortOf(*plan, t, n).address.substr(0, 6), RootOf(*plan, t).address.substr(0, 6));
    }
  }
  EXPECT_EQ(plan->trees.size(), 8u);
}

TEST(plan, a_spare_host_offers_each_nic_by_itself) {
  TwoRails world;
  world.job.job.spec.shape = "star";
  HostRecord spare = Host("a1", "10.77.0.9", true);
  spare.ifaces[0].rate_bps = 10'000'000'000;
  spare.ifaces.push_back({"eth1", "10.78.0.9", 24, 1500, false, true, 10'000'000'000});
  world.hosts.push_back(spare);
  EXPECT_EQ(world.Make()->trees.size(), 1u);
  world.At("a1").ifaces[1].aggregator = true;
  const auto plan = world.Make();
  EXPECT_EQ(plan->trees.size(), 2u);
  EXPECT_EQ(NamesOfAggregators(*plan), "a1");
}

TEST(plan, paths_share_the_trees_that_there_may_be_and_the_slots) {
  TwoRails world;
  for (int h = 5; h <= 8; ++h) {
    HostRecord more = world.hosts[0];
    more.host = "w" + std::to_string(h);
    more.ifaces[0].address = "10.77.0." + std::to_string(h);
    more.ifaces[1].address = "10.78.0." + std::to_string(h);
    world.hosts.push_back(more);
    world.job.members.push_back({1, h - 1, more.host, h, true, false, 0, ""});
  }
  world.job.job.world_size = 8;
  EXPECT_EQ(world.WeightsByIface().at("eth0").size(), 8u);
  EXPECT_EQ(world.WeightsByIface().at("eth1").size(), 8u);
  // Slots for one tree a host: each sums at most one.
  for (HostRecord& host : world.hosts) host.slots_free = SlotsOf(8, 2);
  const auto plan = world.Make();
  ASSERT_TRUE(plan) << plan.error().ToString();
  for (const HostRecord& host : world.hosts) {
    size_t roots = 0;
    for (size_t t = 0; t < plan->trees.size(); ++t) roots += IsRoot(*plan, t, host.host);
    EXPECT_LE(roots, 1u) << host.host;
  }
}

TEST(plan, a_server_has_one_tree_on_hosts_with_several_nics) {
  TwoRails world;
  world.job.job.spec.shape = "auto";
  world.job.job.spec.root = "server";
  world.job.members.push_back({1, kServerRank, "w1", 9, true, false, 0, ""});
  const auto plan = world.Make();
  ASSERT_TRUE(plan) << plan.error().ToString();
  EXPECT_EQ(plan->trees.size(), 1u);
  EXPECT_EQ(NamesOfAggregators(*plan), "w1");
}

}  // namespace
}  // namespace mlnet::control
