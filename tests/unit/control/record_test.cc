// SPDX-License-Identifier: Apache-2.0
// Records as the store gives them back. Hostile ones by the million: tests/fuzz/store.cc.
#include "control/record.h"

#include <gtest/gtest.h>

#include <functional>

#include "unit/control/plan_world.h"

namespace mlnet::control {
namespace {

// A job that runs, as the planner and a daemon leave it.
JobView Running() {
  World world;
  auto plan = world.Make();
  EXPECT_TRUE(plan) << plan.error().ToString();
  Number(*plan, {7, 3}, world.addressing);
  world.job.job.plan = *plan;
  world.job.job.state = kReady;
  return world.job;
}

std::string Refusal(const std::function<void(Json&)>& change) {
  Json json = Running();
  change(json);
  const auto view = ReadJobView(json.dump());
  EXPECT_FALSE(view);
  return view ? "" : view.error().message;
}

TEST(record, what_was_written_is_read) {
  const JobView view = Running();
  const auto read = ReadJobView(Json(view).dump());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(Json(*read), Json(view));
  for (const HostRecord& host : World().hosts) {
    const auto again = ReadHostRecord(Json(host).dump());
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(Json(*again), Json(host));
  }
}

TEST(record, a_job_that_began_in_a_ring_has_a_root_that_is_nobody) {
  World world;
  for (const char* host : {"a1", "a2"}) world.At(host).running = false;
  auto plan = MakeRingPlan({&world.job, &world.hosts, &world.jobs, world.addressing, kNow});
  ASSERT_TRUE(plan) << plan.error().ToString();
  Number(*plan, {7, 3}, world.addressing);
  world.job.job.plan = *plan;
  world.job.job.state = kReady;
  const auto read = ReadJobView(Json(world.job).dump());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(Json(*read), Json(world.job));
  EXPECT_EQ(Refusal([](Json& j) { j["job"]["plan"]["ports"][0]["host"] = ""; }), "a port of the plan has no host");
}

TEST(record, members_that_a_later_version_has_are_left_out) {
  Json json = Running();
  json["job"]["of_later"] = {1, 2};
  EXPECT_TRUE(ReadJobView(json.dump()));
}

TEST(record, a_number_that_does_not_fit_is_refused_and_does_not_wrap) {
  EXPECT_NE(Refusal([](Json& j) { j["job"]["spec"]["slots"] = (uint64_t{1} << 32) + 256; }), "");
  EXPECT_NE(Refusal([](Json& j) { j["job"]["plan"]["epoch"] = 65536 + 3; }), "");
  EXPECT_NE(Refusal([](Json& j) { j["job"]["world_size"] = 3.5; }), "");
  EXPECT_NE(Refusal([](Json& j) { j["job"]["world_size"] = 1e300; }), "");
  EXPECT_NE(Refusal([](Json& j) { j["job"]["opened_ms"] = -1; }), "");
  EXPECT_NE(Refusal([](Json& j) { j["members"][0]["rank"] = ~uint64_t{0}; }), "");
  EXPECT_NE(Refusal([](Json& j) { j["job"]["world_size"] = true; }), "");
}

TEST(record, a_plan_that_points_nowhere_is_refused) {
  const auto nodes = [](Json& j) -> Json& { return j["job"]["plan"]["trees"][0]["nodes"]; };
  EXPECT_EQ(Refusal([&](Json& j) { nodes(j)[1]["port"] = 99; }), "a node of the plan has no port");
  EXPECT_EQ(Refusal([&](Json& j) { nodes(j)[1]["parent"] = 1; }), "a node of the plan is below none that comes before it");
  EXPECT_EQ(Refusal([&](Json& j) { nodes(j)[0]["parent"] = 1; }), "a node of the plan is below none that comes before it");
  EXPECT_EQ(Refusal([&](Json& j) { nodes(j)[1]["port"] = 0; }), "a host is in a tree of the plan twice");
  EXPECT_EQ(Refusal([&](Json& j) { nodes(j).erase(1); }), "a tree of the plan lacks a host of ranks");
  EXPECT_EQ(Refusal([&](Json& j) { j["job"]["plan"]["trees"].clear(); }), "the plan has no trees, or too many");
  EXPECT_EQ(Refusal([&](Json& j) { j["job"]["plan"]["classes"] = 0; }), "the plan's pools are out of range");
  EXPECT_EQ(Refusal([&](Json& j) { j["job"]["plan"]["ports"][0]["address"] = std::string("10.0.0.9\0x", 10); }), "a port of the plan has no address of the plan's family");
  EXPECT_EQ(Refusal([&](Json& j) { j["job"]["plan"]["server_host"] = "w1"; }), "the server is not where the plan's root is");
  EXPECT_EQ(Refusal([&](Json& j) { j["job"]["plan"] = Json::object(); }), "a job that runs has no plan");
}

// Ranks may leave while others still join; in a ring none may.
TEST(record, a_job_whose_ranks_still_join_is_in_no_ring) {
  EXPECT_EQ(Refusal([](Json& j) {
              j["job"]["state"] = "joining";
              j["job"]["ring"] = {{"began_ms", 5}, {"why", "a1 was lost"}, {"token", "t"}};
            }),
            "a job whose ranks still join is in a ring");
}

TEST(record, a_node_with_more_children_than_a_bitmap_has_bits_is_refused) {
  EXPECT_EQ(Refusal([&](Json& j) {
              j["job"]["world_size"] = 65;
              j["job"]["plan"]["host_of_rank"] = std::vector<std::string>(65, "w1");
              for (Json& port : j["job"]["plan"]["ports"]) port["local_address"] = "127.0.0.1";
            }),
            "a node of the plan has too many children");
}

TEST(record, a_job_that_runs_has_all_its_ranks_and_its_key) {
  EXPECT_EQ(Refusal([](Json& j) { j["members"].erase(1); }), "a job that runs lacks a rank");
  EXPECT_EQ(Refusal([](Json& j) { j["members"][1]["rank"] = 0; }), "a rank is there twice");
  EXPECT_EQ(Refusal([](Json& j) { j["job"]["world_size"] = 2; }), "the plan has other ranks than the job");
  EXPECT_EQ(Refusal([](Json& j) { j["job"]["spec"]["mac"] = true; }), "a job with tags has no key");
  EXPECT_EQ(Refusal([](Json& j) { j["job"]["key"] = "00"; }), "the job's key is none");
  EXPECT_EQ(Refusal([](Json& j) { j["job"]["state"] = "asleep"; }), "state 'asleep' is none");
  EXPECT_EQ(Refusal([](Json& j) { j["members"][1]["former_rank"] = 1 << 20; }), "a rank of before is out of range");
  EXPECT_EQ(Refusal([](Json& j) { j["job"]["shrunk"]["lost"] = {-2}; }), "the job's ranks of before are out of range");
  EXPECT_EQ(Refusal([](Json& j) { j["job"]["shrunk"]["world_size_full"] = -1; }), "the job's ranks of before are out of range");
}

TEST(record, what_is_nested_without_end_is_refused_and_takes_no_stack) {
  const std::string deep = R"({"job":)" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";
  EXPECT_FALSE(ReadJobView(deep));
  EXPECT_FALSE(ReadHostRecord(deep));
  EXPECT_FALSE(ReadCounters(deep));
}

TEST(record, a_host_with_an_interface_that_cannot_be_is_refused) {
  const Json good = World().hosts.front();
  for (const Json& change : {Json{{"mtu", -1}}, Json{{"prefix", 33}}, Json{{"prefix6", 129}}, Json{{"address", "fd77::1"}}, Json{{"address6", "10.0.0.1"}}}) {
    Json host = good;
    host["ifaces"][0].update(change);
    EXPECT_FALSE(ReadHostRecord(host.dump())) << change;
  }
  Json nameless = good;
  nameless["host"] = "";
  EXPECT_FALSE(ReadHostRecord(nameless.dump()));
}

TEST(record, counters_have_their_numbers_where_readers_look_for_them) {
  EXPECT_TRUE(ReadCounters(R"({"verdicts":{"SUM_ADD":{"count":3}},"trees":[{"tree":0,"lag":[[3,1.5],[0,0.0]]}]})"));
  for (const char* bad : {"[]", R"({"verdicts":[1]})", R"({"verdicts":{"SUM_ADD":3}})", R"({"trees":{}})", R"({"trees":[[]]})",
                          R"({"trees":[{"lag":[3]}]})", R"({"trees":[{"lag":[[3,"a"]]}]})", R"({"trees":[{"lag":[[-3,1]]}]})"}) {
    EXPECT_FALSE(ReadCounters(bad)) << bad;
  }
}

}  // namespace
}  // namespace mlnet::control
