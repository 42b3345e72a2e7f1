// SPDX-License-Identifier: Apache-2.0
// The planner against the tables of shared/reference/papers.md: G1 (MLNet's push times) and G3 (all-reduce), and against
// the cost model that DESIGN section 7 promises. Expected values are copied from there or worked out by hand.
#include <gtest/gtest.h>

#include "unit/plan/clusters.h"

namespace mlnet::plan {
namespace {

constexpr double kTenGig = 10 * kGig;
constexpr uint64_t kG3Bytes = 100'000'000;  // n/B = 80 ms

struct G3 {
  size_t p;
  double ring_ms, one_server_ms, p_servers_ms;
};
class AllReduce : public testing::TestWithParam<G3> {};

TEST_P(AllReduce, RingIsThatOfTheTable) {
  Settings settings = Ideal();
  settings.level_s = 20e-6;
  const Cluster c = OneSwitch(GetParam().p, kTenGig);
  const Plan plan = Planned(c, OneRankEach(c, GetParam().p, kG3Bytes), settings);
  ASSERT_EQ(plan.rings.size(), 1u);
  EXPECT_NEAR(plan.rings[0].predicted.seconds * 1e3, GetParam().ring_ms, 0.005);
}

// The table counts push and pull one after the other; mlnet does both at once on duplex links: half.
TEST_P(AllReduce, StarIsHalfOfOneServer) {
  const size_t p = GetParam().p;
  const Cluster c = OneSwitch(p + 1, kTenGig);
  for (bool multicast : {true, false}) {
    Job job = OneRankEach(c, p, kG3Bytes);
    job.multicast = multicast;
    EXPECT_NEAR(Of(Planned(c, job), Shape::kStar).predicted.seconds * 2e3, GetParam().one_server_ms, 1e-6);
  }
}

TEST_P(AllReduce, ShardsAreThatOfPServers) {
  const size_t p = GetParam().p;
  const Cluster c = OneSwitch(2 * p, kTenGig);
  const Plan plan = Planned(c, OneRankEach(c, p, kG3Bytes));
  EXPECT_NEAR(Of(plan, Shape::kShards).predicted.seconds * 1e3, GetParam().p_servers_ms, 1e-3);
}

// 2(n-1)/n*S/B: the ring's bandwidth term, without its 2(p-1) steps of 20 us.
TEST_P(AllReduce, WorkersTakeTheRingsBandwidthTerm) {
  const size_t p = GetParam().p;
  const Cluster c = OneSwitch(p, kTenGig);
  const double steps_ms = 2 * (static_cast<double>(p) - 1) * 0.02;
  for (bool multicast : {true, false}) {
    Job job = OneRankEach(c, p, kG3Bytes);
    job.multicast = multicast;
    const Plan plan = Planned(c, job);
    EXPECT_NEAR(Of(plan, Shape::kWorkers).predicted.seconds * 1e3, GetParam().ring_ms - steps_ms, 0.006);
    EXPECT_EQ(plan.choice().shape, Shape::kWorkers);
  }
}

INSTANTIATE_TEST_SUITE_P(G3, AllReduce,
                         testing::Values(G3{4, 120.12, 640, 80}, G3{8, 140.28, 1280, 80}, G3{16, 150.60, 2560, 80},
                                         G3{64, 160.02, 10240, 80}),
                         [](const auto& tested) { return "p" + std::to_string(tested.param.p); });

struct G1 {
  double oversubscription;
  size_t servers, server_racks;
  double base, one_per_rack, binary, spread;
};
class MlnetPush : public testing::TestWithParam<G1> {};

// 800 workers in 50 racks of 16, the servers in racks of their own, as evenly as it goes; rack links of 16 hosts / o.
Cluster MlnetCluster(const G1& g) {
  constexpr double kRate = kTenGig;
  Cluster c = Racks(50, 16, kRate, 0);
  for (size_t s = 0; s < g.servers; ++s)
    c.hosts.push_back(MakeHost("s" + std::to_string(s), kRate, "ps" + std::to_string(s % g.server_racks)));
  const double rack_rate = 16 * kRate / g.oversubscription;
  for (size_t r = 1; r <= 50; ++r) c.racks.push_back({"r" + std::to_string(r), rack_rate, rack_rate});
  for (size_t r = 0; r < g.server_racks; ++r) c.racks.push_back({"ps" + std::to_string(r), rack_rate, rack_rate});
  return c;
}

TEST_P(MlnetPush, TimesAreThoseOfTheTable) {
  const G1 g = GetParam();
  const Cluster c = MlnetCluster(g);
  Job job = OneRankEach(c, 800, 1'000'000);
  job.traffic = Traffic::kPush;
  Settings settings = Ideal();
  settings.children_max = settings.trees_max = 1000;  // MLNet's processes have no 64 bits of bitmap
  const Plan plan = Planned(c, job, settings);
  const auto units = [&](Shape shape) { return InUnits(Of(plan, shape), job.bytes, kTenGig); };
  EXPECT_NEAR(units(Shape::kShards), g.base, 0.01);
  EXPECT_NEAR(units(Shape::kRack), g.one_per_rack, 0.01);
  EXPECT_NEAR(units(Shape::kBinary), g.binary, 0.005);
  // A tree ties a server to one head per rack, so 50 servers do not divide evenly over 16 heads.
  EXPECT_GE(units(Shape::kRackShards), g.spread - 0.005);
  EXPECT_LE(units(Shape::kRackShards), g.spread * 1.05);
  EXPECT_EQ(plan.choice().shape == Shape::kBinary || plan.choice().shape == Shape::kRackShards, true);
}

INSTANTIATE_TEST_SUITE_P(G1, MlnetPush,
                         testing::Values(G1{1, 50, 4, 16.00, 15, 2, 1.00}, G1{1, 100, 7, 8.00, 15, 2, 1.00},
                                         G1{1, 150, 10, 5.333, 15, 2, 1.00}, G1{1, 200, 13, 4.00, 15, 2, 1.00},
                                         G1{4, 50, 4, 50.00, 15, 3.125, 3.125},
                                         G1{4, 100, 7, 28.571, 15, 2, 1.786}, G1{4, 150, 10, 20.00, 15, 2, 1.25},
                                         G1{4, 200, 13, 15.385, 15, 2, 1.00}),
                         [](const auto& tested) {
                           return "o" + std::to_string(static_cast<int>(tested.param.oversubscription)) + "_p" +
                                  std::to_string(tested.param.servers);
                         });

// MLNet's finding as an all-reduce of mlnet: 16 hosts at 1:1. One aggregator takes in the 15 others. In the binary tree
// the busiest node gets two sums and one result.
TEST(Mlnet, OneAggregatorOf15LosesAndTheBinaryTreeWins) {
  const Cluster c = Racks(1, 16, kGig, 1);
  const Job job = OneRankEach(c, 16, 1 << 20);
  const Plan plan = Planned(c, job);
  EXPECT_NEAR(InUnits(Of(plan, Shape::kStar), job.bytes, kGig), 15, 1e-6);
  EXPECT_NEAR(InUnits(Of(plan, Shape::kBinary), job.bytes, kGig), 3, 1e-6);
  EXPECT_NEAR(InUnits(Of(plan, Shape::kDegree), job.bytes, kGig), 5, 1e-6);
  EXPECT_NEAR(InUnits(Of(plan, Shape::kWorkers), job.bytes, kGig), 2 * 15 / 16.0, 1e-4);
}

TEST(CostModel, EnoughBandwidthTakesOnePass) {
  Cluster c = OneSwitch(4, kGig);
  c.hosts.push_back(MakeHost("a1", 4 * kGig));
  const Job job = OneRankEach(c, 4, 1 << 20);
  const Plan plan = Planned(c, job);
  EXPECT_EQ(plan.choice().shape, Shape::kStar);
  EXPECT_NEAR(InUnits(plan.choice(), job.bytes, kGig), 1, 1e-9);
  EXPECT_NEAR(plan.bound_s, plan.choice().predicted.seconds, 1e-12);
}

// README: 64 MiB at 500 Mb/s need 1.15 s for one pass. 67,108,864 * 8 / 5e8 * 1514 / 1408 = 1.15457.
TEST(CostModel, CountsWholeFrames) {
  Cluster c = OneSwitch(4, 5e8);
  c.hosts.push_back(MakeHost("a1", 2e9));
  Settings settings;
  settings.level_s = 0;
  EXPECT_NEAR(Planned(c, OneRankEach(c, 4, 64 << 20), settings).choice().predicted.seconds, 1.15457, 1e-4);
}

TEST(CostModel, NarrowLanesHalveAndQuarter) {
  const Cluster c = OneSwitch(8, kGig);
  Job job = OneRankEach(c, 8, 1 << 20);
  const double wide = Planned(c, job).choice().predicted.seconds;
  job.lane_bits = 16;
  EXPECT_NEAR(Planned(c, job).choice().predicted.seconds, wide / 2, wide * 1e-6);
  job.lane_bits = 8;
  EXPECT_NEAR(Planned(c, job).choice().predicted.seconds, wide / 4, wide * 1e-6);
}

// Four racks of four, the core 1:4, only worker hosts. By hand: a host leads its rack for 1/4 of the job and is root of
// 1/16. Down: 3/4 (members) + 3/16 (other racks) + 3/4 + 3/16 (results) = 15/8. Rack down: 3/4 + 3/4 of what one host's
// link carries. The star takes 15. The ring of 16 takes 15/8, over the core four times that when interleaved.
TEST(CostModel, OversubscribedCore) {
  const Cluster c = Racks(4, 4, kGig, 4);
  const Job job = OneRankEach(c, 16, 1 << 20);
  const Plan plan = Planned(c, job);
  const double unit = (1 << 20) * 8 / kGig;
  EXPECT_EQ(plan.choice().shape, Shape::kRackShards);
  EXPECT_NEAR(plan.choice().predicted.seconds, 15 / 8.0 * unit, 1e-5 * unit);
  EXPECT_NEAR(plan.choice().predicted.core_bytes, 4.0 * (1 << 20), 1) << "one contribution per rack";
  EXPECT_NEAR(Of(plan, Shape::kStar).predicted.seconds, 15 * unit, 1e-6 * unit);
  ASSERT_EQ(plan.rings.size(), 2u);
  EXPECT_NEAR(plan.rings[0].predicted.seconds, 15 / 8.0 * unit, 1e-6 * unit);
  EXPECT_NEAR(plan.rings[1].predicted.seconds, 15 / 2.0 * unit, 1e-6 * unit);
}

// 8 ranks on each host are one contribution: the same plan and the same bytes as for one.
TEST(CostModel, RanksOfAHostAreOneContribution) {
  const Cluster c = OneSwitch(4, kGig);
  Job job = OneRankEach(c, 4, 1 << 20);
  const Plan one = Planned(c, job);
  const auto hosts = job.host_of_rank;
  for (int i = 1; i < 8; ++i) job.host_of_rank.insert(job.host_of_rank.end(), hosts.begin(), hosts.end());
  const Plan eight = Planned(c, job);
  for (size_t l = 0; l < one.choice().predicted.links.size(); ++l)
    EXPECT_DOUBLE_EQ(one.choice().predicted.links[l].bytes, eight.choice().predicted.links[l].bytes);
}

}  // namespace
}  // namespace mlnet::plan
