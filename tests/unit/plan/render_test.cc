// SPDX-License-Identifier: Apache-2.0
#include "plan/render.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "unit/plan/clusters.h"

namespace mlnet::plan {
namespace {

struct Example {
  Cluster cluster = Racks(2, 2, 5e8, 4);
  Job job = OneRankEach(cluster, 4, 64 << 20);
  Plan plan = Planned(cluster, job, {});
};

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

TEST(RenderText, HasARowPerShapeAndOneMark) {
  const std::string text = RenderText(Example().plan);
  for (const std::string& name : ShapeNames()) EXPECT_NE(text.find("  " + name), std::string::npos) << text;
  EXPECT_EQ(CountOf(text, "\n* "), 1u) << text;
  EXPECT_NE(text.find("not possible: needs 2 hosts without ranks"), std::string::npos) << text;
  EXPECT_EQ(text.find(" \n"), std::string::npos) << "blanks at the end of a line";
  EXPECT_NE(text.find(Example().plan.reason), std::string::npos);
}

TEST(RenderJson, NamesHostsAndCarriesEveryLink) {
  const Example e;
  const auto json = RenderJson(e.plan, e.cluster, e.job);
  EXPECT_EQ(json["schema"], "mlnet.plan/1");
  EXPECT_EQ(json["candidates"].size(), ShapeNames().size());
  double sum = 0;
  for (const auto& tree : json["trees"]) {
    sum += tree["weight"].get<double>();
    EXPECT_EQ(tree["nodes"].size(), 4u);
    EXPECT_TRUE(tree["nodes"][0]["parent"].is_null());
    EXPECT_EQ(tree["nodes"][0]["ranks"], 1);
  }
  EXPECT_NEAR(sum, 1, 1e-9);
  for (const auto& c : json["candidates"]) {
    if (!c["possible"].get<bool>()) continue;
    EXPECT_EQ(c["predicted"]["links"].size(), 2u * 4 + 2 * 2);
  }
}

TEST(RenderDot, DrawsEveryTreeOnce) {
  const Example e;
  const std::string dot = RenderDot(e.plan, e.cluster, e.job);
  const size_t trees = e.plan.choice().trees.size();
  EXPECT_EQ(CountOf(dot, "subgraph"), trees) << dot;
  EXPECT_EQ(CountOf(dot, " -> "), trees * 3) << dot;
  EXPECT_EQ(CountOf(dot, "{"), CountOf(dot, "}"));
  EXPECT_NE(dot.find("r1h1 (r1), 1 rank"), std::string::npos) << dot;
}

TEST(RenderDot, LeavesOutWhatIsAlike) {
  const Cluster c = OneSwitch(20, kGig);
  const Job job = OneRankEach(c, 20, 8);
  const std::string dot = RenderDot(Planned(c, job), c, job);
  EXPECT_EQ(CountOf(dot, "subgraph"), 8u);
  EXPECT_NE(dot.find("and 12 more trees"), std::string::npos) << dot;
}

TEST(SecondsText, HasThreeDigits) {
  EXPECT_EQ(SecondsText(1.7323), "1.73 s");
  EXPECT_EQ(SecondsText(0.0124), "12.4 ms");
  EXPECT_EQ(SecondsText(80e-6), "80 us");
}

}  // namespace
}  // namespace mlnet::plan
