// SPDX-License-Identifier: Apache-2.0
// Timelines: what becomes of a rank's collectives and a kernel's sums, and of several hosts put together.
#include "mlnetctl/timeline.h"

#include <gtest/gtest.h>

namespace mlnet::ctl {
namespace {

Json Collective(int rank, const std::string& what, uint64_t first_seq, uint64_t packets, uint64_t called_ns) {
  return {{"rank", rank},           {"what", what},           {"tree", 0},          {"class", 2},        {"stream", 0},
          {"first_seq", first_seq}, {"packets", packets},     {"bytes", packets * 1408}, {"called_ns", called_ns},
          {"sent_first_ns", called_ns + 1'000}, {"sent_last_ns", called_ns + 4'000}, {"received_ns", called_ns + 7'000}, {"done_ns", called_ns + 8'000}};
}
// One each `step_ns`.
Json Sums(uint64_t first_seq, uint64_t packets, uint64_t first_ns, uint64_t step_ns) {
  Json after_ns = Json::array();
  for (uint64_t i = 0; i < packets; ++i) after_ns.push_back(i * step_ns);
  return {{"tree", 0}, {"class", 2}, {"stream", 0}, {"first_seq", first_seq}, {"packets", packets}, {"first_ns", first_ns}, {"waited_ns", 100}, {"after_ns", after_ns}};
}
Json Host(const std::string& name, int64_t clock_offset_ns, const Json& rows) {
  return {{"host", name}, {"name", "demo"}, {"clock_offset_ns", clock_offset_ns}, {"rows", rows}, {"lost", 0}};
}

std::vector<Json> Spans(const Json& rendered, const std::string& category) {
  std::vector<Json> spans;
  for (const Json& event : rendered["traceEvents"]) {
    if (event.value("cat", "") == category) spans.push_back(event);
  }
  return spans;
}

TEST(Timeline, a_collective_has_its_phases_one_after_the_other) {
  const Json rendered = RenderTimeline({{Host("w1", 0, Json::array({Collective(3, "all_reduce #0", 0, 10, 50'000)}))}, {}});
  const auto collectives = Spans(rendered, "collective"), phases = Spans(rendered, "phase");
  ASSERT_EQ(collectives.size(), 1u);
  EXPECT_EQ(collectives[0]["name"], "all_reduce #0");
  EXPECT_EQ(collectives[0]["pid"], 3);
  EXPECT_EQ(collectives[0]["ts"], 50.0);
  EXPECT_EQ(collectives[0]["dur"], 8.0);
  EXPECT_FALSE(collectives[0]["args"].contains("summed_from_us")) << "nobody told";
  ASSERT_EQ(phases.size(), 3u);
  double at = 50;
  for (const auto& [index, name, dur] : {std::tuple{0u, "queued", 1.0}, {1u, "sent", 3.0}, {2u, "received", 3.0}}) {
    EXPECT_EQ(phases[index]["name"], name);
    EXPECT_EQ(phases[index]["ts"], at);
    EXPECT_EQ(phases[index]["dur"], dur);
    at += dur;
  }
}

TEST(Timeline, collectives_of_one_class_that_overlap_have_rows_of_their_own) {
  const Json rendered = RenderTimeline(
      {{Host("w1", 0, {Collective(0, "a", 0, 10, 50'000), Collective(0, "b", 10, 10, 52'000), Collective(0, "c", 20, 10, 58'000)})}, {}});
  const auto collectives = Spans(rendered, "collective");
  ASSERT_EQ(collectives.size(), 3u);
  EXPECT_NE(collectives[0]["tid"], collectives[1]["tid"]);
  EXPECT_EQ(collectives[0]["tid"], collectives[2]["tid"]) << "a was done when c was called";
}

TEST(Timeline, sums_of_another_host_belong_to_the_collective_that_has_their_seq_on_one_clock) {
  // The aggregator's monotonic clock is 1 ms behind, by its offset to the wall clock.
  const Json rows = {Collective(0, "a", 0, 10, 2'050'000), Collective(0, "b", 10, 10, 2'052'000)};
  const Json sums = {Sums(0, 8, 1'052'000, 100), Sums(8, 4, 1'053'000, 200), Sums(12, 8, 1'055'000, 100)};
  Timeline timeline{{Host("w1", 0, rows), Host("a1", 1'000'000, sums)}, {}};
  const Json rendered = RenderTimeline(timeline);
  const auto collectives = Spans(rendered, "collective");
  EXPECT_EQ(collectives[0]["args"]["summed_from_us"], 2'052.0);
  EXPECT_EQ(collectives[0]["args"]["summed_until_us"], 2'053.2) << "packets 8 and 9 of the second row";
  EXPECT_EQ(collectives[1]["args"]["summed_from_us"], 2'053.4);
  EXPECT_EQ(collectives[1]["args"]["summed_until_us"], 2'055.7);
  const auto summed = Spans(rendered, "summed");
  ASSERT_EQ(summed.size(), 2u);
  EXPECT_EQ(summed[0]["name"], "a");
  EXPECT_EQ(summed[1]["name"], "b");
  EXPECT_NE(summed[0]["pid"], collectives[0]["pid"]);
}

TEST(Timeline, sums_whose_collective_nobody_knows_are_named_by_their_packets) {
  const auto summed = Spans(RenderTimeline({{Host("a1", 0, Json::array({Sums(40, 8, 1'000, 1)}))}, {}}), "summed");
  ASSERT_EQ(summed.size(), 1u);
  EXPECT_EQ(summed[0]["name"], "packets from 40");
}

TEST(Timeline, files_can_be_put_together_again_and_again) {
  const Json of_python = {{"traceEvents", Json::array({{{"ph", "X"}, {"cat", "bucket"}, {"name", "sent"}, {"pid", 0}, {"tid", 0}, {"ts", 1.0}, {"dur", 2.0}}})}};
  Timeline first;
  ASSERT_TRUE(AddToTimeline(first, RenderTimeline({{Host("w1", 0, Json::array({Collective(0, "a", 0, 10, 50'000)}))}, {}})));
  ASSERT_TRUE(AddToTimeline(first, of_python));
  Timeline second;
  ASSERT_TRUE(AddToTimeline(second, RenderTimeline(first)));
  ASSERT_TRUE(AddToTimeline(second, RenderTimeline({{Host("a1", 0, Json::array({Sums(0, 11, 52'000, 100)}))}, {}})));
  const Json rendered = RenderTimeline(second);
  EXPECT_EQ(Spans(rendered, "bucket").size(), 1u);
  ASSERT_EQ(Spans(rendered, "collective").size(), 1u);
  EXPECT_EQ(Spans(rendered, "collective")[0]["args"]["summed_until_us"], 52.9) << "the eleventh is another collective's";
}

TEST(Timeline, files_of_two_jobs_are_not_put_together) {
  Json other = Host("a1", 0, Json::array({Sums(0, 10, 52'000, 100)}));
  other["name"] = "another";
  Timeline timeline;
  ASSERT_TRUE(AddToTimeline(timeline, RenderTimeline({{Host("w1", 0, Json::array({Collective(0, "a", 0, 10, 50'000)}))}, {}})));
  const auto added = AddToTimeline(timeline, RenderTimeline({{other}, {}}));
  ASSERT_FALSE(added);
  EXPECT_NE(added.error().message.find("of job 'another', not of 'demo'"), std::string::npos) << added.error().message;
  EXPECT_EQ(timeline.hosts.size(), 1u);
}

TEST(Timeline, refuses_what_is_no_timeline) {
  Timeline timeline;
  for (const Json& file : {Json(1), Json::object(), Json{{"traceEvents", 1}}, Json{{"traceEvents", Json::array()}, {"mlnet", {1}}}}) {
    EXPECT_FALSE(AddToTimeline(timeline, file)) << file.dump();
  }
}

}  // namespace
}  // namespace mlnet::ctl
