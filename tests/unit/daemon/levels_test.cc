// SPDX-License-Identifier: Apache-2.0
// A job's trees level by level. Expected numbers are worked out by hand from what the nodes are said to have done.
#include "daemon/levels.h"

#include <gtest/gtest.h>

namespace mlnet::daemon {
namespace {

using control::JobView;
using control::Json;

mlnet_link Link(uint64_t samples, uint64_t total_ns) {
  mlnet_link link{};
  link.lag_count = samples;
  link.lag_ns = total_ns;
  return link;
}

/// Four ranks on h1 and four on h2, each combined there; h1 has the rack r1 above it, h2 and r1 send to the root a1.
class Levels : public ::testing::Test {
 protected:
  void SetUp() override {
    view_.job.name = "demo";
    view_.job.state = control::kReady;
    view_.job.world_size = 8;
    control::Plan& plan = view_.job.plan;
    for (const char* host : {"a1", "h1", "h2", "r1"}) plan.ports.push_back({host, "eth0", std::string("10.0.0.") + host[1], "169.254.1.1"});
    plan.trees.push_back({1, {{0, -1}, {1, 3}, {2, 0}, {3, 0}}});
    plan.host_of_rank = {"h1", "h1", "h1", "h1", "h2", "h2", "h2", "h2"};
    for (unsigned rank = 0; rank < 8; ++rank) {
      counters_.push_back({"rank " + std::to_string(rank), {{"packets_sent", 100u}, {"results", 99u}, {"retransmits", rank}}});
    }
    Publish("h1", true, Inner(400, 100, 0), {Link(4, 8'000), Link(4, 0), Link(0, 0), Link(2, 20'000)});
    Publish("h2", true, Inner(200, 48, 2), {});
    Publish("r1", true, Inner(100, 100, 0), {Link(1, 1'000)});
    mlnet_stats root{};
    root.contributions = 150;
    root.results = 50;
    root.words_summed = 1000;
    root.verdicts[MLNET_V_RESEND_RESULT] = 7;
    root.verdicts[MLNET_V_HELD] = 3;
    Publish("a1", false, root, {Link(10, 0), Link(10, 300'000)});
  }

  // `late`: sums that waited for a packet that could carry them, and left with a retry. Five more were only repeated.
  static mlnet_stats Inner(uint64_t in, uint64_t out, uint64_t late) {
    mlnet_stats stats{};
    stats.contributions = in;
    stats.words_summed = 10 * in;
    stats.verdicts[MLNET_V_PARTIAL_TX] = out / 2;
    stats.verdicts[MLNET_V_PARTIAL_REDIRECT] = out - out / 2;
    stats.verdicts[MLNET_V_SUM_COMPLETE_UNSENT] = late;
    stats.verdicts[MLNET_V_PARTIAL_AGAIN_TX] = late + 2;
    stats.verdicts[MLNET_V_PARTIAL_AGAIN_REDIRECT] = 3;
    return stats;
  }
  void Publish(const std::string& host, bool is_inner, const mlnet_stats& stats, const std::vector<mlnet_link>& links) {
    counters_.push_back({"host " + host, {{"trees", {NodeCounters(0, is_inner, stats, links)}}}});
  }
  Json LevelOf(const Json& levels, size_t index) const { return levels["trees"][0]["levels"][index]; }

  JobView view_;
  std::vector<Store::Counters> counters_;
};

TEST_F(Levels, they_are_in_the_order_in_which_packets_go_up) {
  const Json levels = LevelsOf(view_, counters_, {});
  EXPECT_EQ(levels["schema"], "mlnet.levels/1");
  EXPECT_EQ(levels["ranks"], (Json{{"ranks", 8}, {"packets_out", 800}, {"packets_in", 792}, {"resends", 28}}));
  ASSERT_EQ(levels["trees"].size(), 1u);
  ASSERT_EQ(levels["trees"][0]["levels"].size(), 3u);
  const std::vector<std::vector<std::string>> hosts = {{"h1"}, {"h2", "r1"}, {"a1"}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(LevelOf(levels, i)["level"], 2 - i);
    ASSERT_EQ(LevelOf(levels, i)["nodes"].size(), hosts[i].size());
    for (size_t n = 0; n < hosts[i].size(); ++n) EXPECT_EQ(LevelOf(levels, i)["nodes"][n]["host"], hosts[i][n]);
  }
}

TEST_F(Levels, each_node_shows_what_went_in_and_came_out) {
  const Json levels = LevelsOf(view_, counters_, {});
  const Json h1 = LevelOf(levels, 0)["nodes"][0], h2 = LevelOf(levels, 1)["nodes"][0], a1 = LevelOf(levels, 2)["nodes"][0];
  EXPECT_EQ(h1["children"], 4);
  EXPECT_EQ(h1["packets_in"], 400);
  EXPECT_EQ(h1["packets_out"], 100);
  EXPECT_EQ(h1["reduction"], 4.0);
  EXPECT_EQ(h1["resends"], 5);
  EXPECT_EQ(h2["packets_out"], 50) << "48 at once, 2 with a retry";
  EXPECT_EQ(h2["resends"], 5) << "of the retries the first two carried something new";
  EXPECT_EQ(a1["children"], 2);
  EXPECT_EQ(a1["reduction"], 3.0);
  EXPECT_EQ(a1["resends"], 7);
  EXPECT_EQ(a1["held"], 3);
}

TEST_F(Levels, a_level_is_the_sum_of_its_nodes) {
  const Json level = LevelOf(LevelsOf(view_, counters_, {}), 1);
  EXPECT_EQ(level["packets_in"], 300);
  EXPECT_EQ(level["packets_out"], 150);
  EXPECT_EQ(level["reduction"], 2.0);
}

TEST_F(Levels, lag_is_that_of_all_samples_and_the_slowest_child_is_named) {
  const Json levels = LevelsOf(view_, counters_, {});
  const Json h1 = LevelOf(levels, 0)["nodes"][0], h2 = LevelOf(levels, 1)["nodes"][0], a1 = LevelOf(levels, 2)["nodes"][0];
  EXPECT_DOUBLE_EQ(h1["lag_us"], 2.8) << "28 us over 10 samples";
  EXPECT_EQ(h1["slowest"], (Json{{"child", "rank 3"}, {"at", "h1"}, {"lag_us", 10.0}}));
  EXPECT_EQ(h2["slowest"], nullptr);
  EXPECT_EQ(h2["lag_us"], nullptr);
  EXPECT_EQ(a1["slowest"]["child"], "host h2");
  EXPECT_FALSE(a1.contains("lag"));
}

TEST_F(Levels, one_tree_alone_shows_every_child) {
  const Json levels = LevelsOf(view_, counters_, 0);
  EXPECT_EQ(LevelOf(levels, 2)["nodes"][0]["lag"],
            (Json{{{"child", "host r1"}, {"samples", 10}, {"mean_us", 0.0}}, {{"child", "host h2"}, {"samples", 10}, {"mean_us", 30.0}}}));
  EXPECT_EQ(LevelOf(levels, 0)["nodes"][0]["lag"][2]["child"], "rank 2");
  EXPECT_TRUE(LevelsOf(view_, counters_, 1)["trees"].empty());
}

TEST_F(Levels, each_rank_is_late_where_it_sends_to) {
  const Json lag = LagOfRanks(view_, counters_);
  ASSERT_EQ(lag.size(), 8u);
  EXPECT_EQ(lag[3], (Json{{"rank", 3}, {"samples", 2}, {"mean_us", 10.0}}));
  EXPECT_EQ(lag[5]["samples"], 0) << "its host has sampled nothing";
}

TEST_F(Levels, host_that_has_published_nothing_has_done_nothing) {
  std::erase_if(counters_, [](const auto& c) { return c.source == "host h1"; });
  const Json h1 = LevelOf(LevelsOf(view_, counters_, {}), 0)["nodes"][0];
  EXPECT_EQ(h1["packets_in"], 0);
  EXPECT_EQ(h1["reduction"], nullptr);
}

TEST_F(Levels, activity_of_a_job_is_that_of_all_its_nodes) {
  const Json row = ActivityOf(view_, counters_);
  EXPECT_EQ(row["packets_in"], 400 + 200 + 100 + 150);
  EXPECT_EQ(row["packets_out"], 100 + 50 + 100 + 50);
  EXPECT_EQ(row["bytes_summed"], 8 * (7000 + 1000));
  EXPECT_EQ(row["resends"], 28 + 5 + 5 + 5 + 7) << "of ranks and nodes";
  EXPECT_EQ(row["slowest"], (Json{{"child", "host h2"}, {"at", "a1"}, {"lag_us", 30.0}}));
}

}  // namespace
}  // namespace mlnet::daemon
