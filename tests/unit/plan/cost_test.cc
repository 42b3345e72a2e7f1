// SPDX-License-Identifier: Apache-2.0
// Links and levels, counted by hand.
#include "plan/cost.h"

#include <gtest/gtest.h>

#include <map>

#include "unit/plan/clusters.h"

namespace mlnet::plan {
namespace {

Site Sited(const Cluster& c, const Job& job, const Settings& settings = Ideal()) {
  auto site = MakeSite(c, job, settings);
  EXPECT_TRUE(site.has_value()) << site.error().ToString();
  return *site;
}

std::map<std::string, double> Named(const Site& site, const std::vector<double>& loads) {
  std::map<std::string, double> named;
  for (size_t l = 0; l < loads.size(); ++l) {
    if (loads[l] != 0) named[site.links[l].name] = loads[l];
  }
  return named;
}

// r1h1 <- r1h2, r1h1 <- r2h1 <- r2h2
struct TwoRacks {
  Cluster cluster = Racks(2, 2, kGig, 1);
  Tree tree{{{0, -1, {1, 2}}, {1, 0, {}}, {2, 0, {3}}, {3, 2, {}}}, 1};
};

TEST(Loads, MulticastCrossesEachLinkOnce) {
  const TwoRacks t;
  const Site site = Sited(t.cluster, OneRankEach(t.cluster, 4, 8));
  const std::map<std::string, double> expected = {
      {"r1h1 up", 1},    {"r1h1 down", 2},  // one result out, two sums in
      {"r1h2 up", 1},    {"r1h2 down", 1},  {"r2h1 up", 2},      {"r2h1 down", 2},
      {"r2h2 up", 1},    {"r2h2 down", 1},  {"rack r1 up", 1},   {"rack r1 down", 1},
      {"rack r2 up", 1}, {"rack r2 down", 1}};
  EXPECT_EQ(Named(site, LoadsOf(site, t.tree)), expected);
}

TEST(Loads, UnicastSendsACopyPerChild) {
  const TwoRacks t;
  Job job = OneRankEach(t.cluster, 4, 8);
  job.multicast = false;
  const Site site = Sited(t.cluster, job);
  EXPECT_EQ(Named(site, LoadsOf(site, t.tree))["r1h1 up"], 2);
}

TEST(Loads, PushSendsNothingBack) {
  const TwoRacks t;
  Job job = OneRankEach(t.cluster, 4, 8);
  job.traffic = Traffic::kPush;
  const Site site = Sited(t.cluster, job);
  const std::map<std::string, double> expected = {{"r1h1 down", 2},  {"r1h2 up", 1},      {"r2h1 up", 1},
                                                  {"r2h1 down", 1},  {"r2h2 up", 1},      {"rack r1 down", 1},
                                                  {"rack r2 up", 1}};
  EXPECT_EQ(Named(site, LoadsOf(site, t.tree)), expected);
}

// A host in no rack hangs on the core: only the rack's link is between them.
TEST(Loads, OfAHostOnTheCore) {
  Cluster c = Racks(1, 1, kGig, 1);
  c.hosts.push_back(MakeHost("a1", kGig));
  const Site site = Sited(c, OneRankEach(c, 1, 8));
  const std::map<std::string, double> expected = {{"r1h1 up", 1},      {"r1h1 down", 1}, {"a1 up", 1}, {"a1 down", 1},
                                                  {"rack r1 up", 1}, {"rack r1 down", 1}};
  EXPECT_EQ(Named(site, LoadsOf(site, {{{1, -1, {1}}, {0, 0, {}}}, 1})), expected);
}

TEST(Levels, CountSumsOnTheLongestWay) {
  const TwoRacks t;
  Job job = OneRankEach(t.cluster, 4, 8);
  EXPECT_EQ(LevelsOf(Sited(t.cluster, job), t.tree), 2);  // r2h2 -> r2h1 -> r1h1; r2h1's own rank as well
  job.host_of_rank.push_back("r2h2");                     // two ranks meet on r2h2 first
  EXPECT_EQ(LevelsOf(Sited(t.cluster, job), t.tree), 3);
}

TEST(Latency, IsTwoRoundTripsOverAllLevels) {
  const TwoRacks t;
  Settings settings = Ideal();
  settings.level_s = 1e-3;
  const Prediction p = Predict(Sited(t.cluster, OneRankEach(t.cluster, 4, 8), settings), {t.tree});
  EXPECT_NEAR(p.latency_s, 8e-3, 1e-12);
  EXPECT_DOUBLE_EQ(p.seconds, p.latency_s + p.bandwidth_s);
}

TEST(Site, RackLinksComeFromTheOversubscriptionUnlessNamed) {
  Cluster c = Racks(2, 4, kGig, 4);
  c.racks.push_back({"r2", 3 * kGig, 0});
  const Site site = Sited(c, OneRankEach(c, 8, 8));
  EXPECT_EQ(site.links[site.RackUp(0)].rate_bps, kGig);
  EXPECT_EQ(site.links[site.RackUp(1)].rate_bps, 3 * kGig);
  EXPECT_EQ(site.links[site.RackDown(1)].rate_bps, kGig);
}

TEST(Site, FramesOfAnMtu) {
  Settings s;
  FitToMtu(s, 1500);
  EXPECT_EQ(s.payload_bytes, 1408);
  EXPECT_EQ(s.frame_bytes, 1514);
  FitToMtu(s, 576);  // 576 - 92 bytes hold 3 blocks of 128
  EXPECT_EQ(s.payload_bytes, 384);
  EXPECT_EQ(s.frame_bytes, 490);
  FitToMtu(s, 3498);
  EXPECT_EQ(s.payload_bytes, 2816);
  EXPECT_EQ(s.frame_bytes, 2922);
}

struct BadInput {
  const char* name;
  void (*spoil)(Cluster&, Job&);
  const char* message;
};
class Refused : public testing::TestWithParam<BadInput> {};

TEST_P(Refused, SaysWhy) {
  Cluster c = Racks(2, 2, kGig, 4);
  Job job = OneRankEach(c, 4, 8);
  GetParam().spoil(c, job);
  const auto site = MakeSite(c, job, Ideal());
  ASSERT_FALSE(site.has_value());
  EXPECT_NE(site.error().message.find(GetParam().message), std::string::npos) << site.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Site, Refused,
    testing::Values(
        BadInput{"NoRanks", [](Cluster&, Job& j) { j.host_of_rank.clear(); }, "no ranks"},
        BadInput{"NoBytes", [](Cluster&, Job& j) { j.bytes = 0; }, "0 bytes"},
        BadInput{"OddLanes", [](Cluster&, Job& j) { j.lane_bits = 12; }, "lanes of 12 bits"},
        BadInput{"Int8", [](Cluster&, Job& j) { j.lane_bits = 8; j.host_of_rank.resize(17, "r1h1"); }, "int8"},
        BadInput{"Int16", [](Cluster&, Job& j) { j.lane_bits = 16; j.host_of_rank.resize(65, "r1h1"); }, "int16"},
        BadInput{"Stranger", [](Cluster&, Job& j) { j.host_of_rank.push_back("x"); }, "rank 4 is on host 'x'"},
        BadInput{"Crowd", [](Cluster&, Job& j) { j.host_of_rank.resize(69, "r1h1"); }, "'r1h1' has 66 ranks"},
        BadInput{"Twice", [](Cluster& c, Job&) { c.hosts[1].name = "r1h1"; }, "named twice"},
        BadInput{"Negative", [](Cluster& c, Job&) { c.hosts[1].up_bps = -1; }, "negative"},
        BadInput{"Ratio", [](Cluster& c, Job&) { c.oversubscription = -4; }, "oversubscription"},
        BadInput{"EmptyRack", [](Cluster& c, Job&) { c.racks.push_back({"r9", 1, 1}); }, "'r9' has no hosts"}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace mlnet::plan
