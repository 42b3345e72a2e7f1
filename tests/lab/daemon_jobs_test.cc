// SPDX-License-Identifier: Apache-2.0
// Several jobs on the same hosts, with real daemons and ranks that report by hand: who is granted what, live changes,
// quotas.
#include "lab/daemon_fixture.h"

namespace mlnet::test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

class DaemonJobs : public ::testing::Test {
 protected:
  struct Job {
    std::string name;
    std::vector<Joined> ranks;
    uint64_t bytes = 0;
    Json grant;  // rank 1's latest; null: none yet
  };

  Job Open(const std::string& name, const Json& spec) {
    Json params = spec;
    params["name"] = name;
    params["world_size"] = 2;
    lab_.Call("w1", "job.create", params);
    Job job{name, lab_.Join(name, {{"w1", 0}, {"w2", 1}}), 0, nullptr};
    for (const Joined& rank : job.ranks) EXPECT_TRUE(rank.ok) << rank.error.ToString();
    return job;
  }
  // The rank's next report: so much more is done.
  static void Progress(Job& job, uint64_t bytes) {
    job.bytes += bytes;
    for (Joined& rank : job.ranks) EXPECT_TRUE(rank.client->Notify("report", {{"bytes", job.bytes}}).has_value());
  }
  static void TakePushes(Job& job) {
    for (;;) {
      auto push = job.ranks[1].client->NextPush(std::chrono::milliseconds(0));
      if (!push || !*push) return;
      if ((**push)["event"] == "grant") job.grant = **push;
    }
  }
  // Reports of progress go on until all jobs have been told what is expected.
  static bool WaitGrants(std::vector<Job*> jobs, const std::function<bool()>& condition) {
    return WaitUntil([&] {
      for (Job* job : jobs) {
        Progress(*job, 1);
        TakePushes(*job);
      }
      return condition();
    });
  }
  static bool Is(const Job& job, const char* key, const Json& value) { return !job.grant.is_null() && job.grant[key] == value; }

  DaemonLab lab_{{"w1", "w2", "a1"}};
};

TEST_F(DaemonJobs, equal_jobs_get_equal_windows_and_a_weight_changes_them_live) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  Job a = Open("a", Json::object()), b = Open("b", Json::object());
  ASSERT_TRUE(WaitGrants({&a, &b}, [&] { return Is(a, "window", 64) && Is(b, "window", 64); }));
  EXPECT_EQ(a.grant["waits"], false);
  EXPECT_EQ(a.grant["dscp"], -1);
  lab_.Call("a1", "job.set", {{"name", "b"}, {"weight", 3}});
  EXPECT_TRUE(WaitGrants({&a, &b}, [&] { return Is(a, "window", 32) && Is(b, "window", 96); })) << a.grant << b.grant;
  // One that has stopped leaves everything to the other.
  EXPECT_TRUE(WaitGrants({&a}, [&] { return Is(a, "window", 0); })) << a.grant;
  EXPECT_TRUE(WaitGrants({&a, &b}, [&] { return Is(a, "window", 32); })) << a.grant;
  lab_.Leave(b.ranks);
  EXPECT_TRUE(WaitGrants({&a}, [&] { return Is(a, "window", 0); })) << a.grant;
}

TEST_F(DaemonJobs, the_shortest_goes_first_and_the_next_one_follows_when_it_has_left) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  Job large = Open("large", {{"order", "shortest"}, {"work_bytes", 1000 * kMiB}});
  Job small = Open("small", {{"order", "shortest"}, {"work_bytes", 100 * kMiB}});
  ASSERT_TRUE(WaitGrants({&large, &small}, [&] { return Is(large, "waits", true); }));
  EXPECT_EQ(large.grant["window"], 8);  // next in line
  EXPECT_EQ(large.grant["dscp"], 1);
  EXPECT_TRUE(small.grant.is_null() || small.grant["waits"] == false);
  const Json shown = lab_.Call("a1", "job.show", {{"name", "small"}});
  EXPECT_EQ(shown["progress"]["work_bytes"], 100 * kMiB);
  // All but a little of the large one is done: it is the shorter one now.
  Progress(large, 990 * kMiB);
  EXPECT_TRUE(WaitGrants({&large, &small}, [&] { return Is(large, "waits", false) && Is(small, "waits", true); }));
  lab_.Leave(large.ranks);
  EXPECT_TRUE(WaitGrants({&small}, [&] { return Is(small, "waits", false); })) << small.grant;
}

TEST_F(DaemonJobs, a_large_pool_of_another_class_is_made_at_its_first_packet) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  Job job = Open("a", {{"slots", 16384}, {"classes", 2}});
  const int before = lab_.NumInnerMaps("a1");
  ASSERT_NO_FATAL_FAILURE(lab_.ExpectSum(job.ranks, 16383));
  EXPECT_EQ(lab_.NumInnerMaps("a1"), before);
  const Json& pool = job.ranks[0].reply.result["trees"][0]["pools"][1];
  ASSERT_EQ(pool["class"], 1);
  ASSERT_EQ(pool["log2_slots"], 14);
  const mlnet_cell* cells = job.ranks[0].MapInbox();
  ASSERT_NE(cells, nullptr);
  const volatile mlnet_cell& cell = cells[pool["cell_base"].get<uint32_t>()];
  const uint64_t stamp = MLNET_STAMP(job.ranks[0].reply.result["epoch"].get<uint64_t>(), 0);
  EXPECT_TRUE(WaitUntil([&] {  // the first packets are lost, and come again, as a rank's timer has them
    lab_.Contribute("w1", job.ranks[0], 0, 40, 7, 1);
    lab_.Contribute("w2", job.ranks[1], 0, 2, 7, 1);
    return cell.published == stamp;
  }));
  EXPECT_EQ(cell.w[0], 42u);
  EXPECT_EQ(cell.weight, 2);
  EXPECT_EQ(lab_.NumInnerMaps("a1"), before + 1);
  lab_.Leave(job.ranks);
  EXPECT_TRUE(WaitUntil([&] { return lab_.NumInnerMaps("a1") == 0; }));
}

TEST_F(DaemonJobs, an_unknown_key_is_refused_by_name) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  lab_.Call("w1", "job.create", {{"name", "a"}, {"world_size", 2}});
  EXPECT_THAT(lab_.CallError("w1", "job.set", {{"name", "a"}, {"wieght", 3}}).message, HasSubstr("'wieght'"));
  EXPECT_THAT(lab_.CallError("w1", "job.set", {{"name", "a"}, {"weight", 0}}).message, HasSubstr("1 to 100"));
  EXPECT_THAT(lab_.CallError("w1", "job.set", {{"name", "a"}, {"order", "fast"}}).message, HasSubstr("fair, shortest"));
}

TEST_F(DaemonJobs, how_long_is_too_long_can_be_raised_while_a_job_runs_and_not_lowered) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  Job job = Open("a", {{"lost_ms", 1000}});
  lab_.Call("w1", "job.set", {{"name", "a"}, {"lost_ms", 5000}});
  EXPECT_EQ(lab_.Call("a1", "job.show", {{"name", "a"}})["spec"]["lost_ms"], 5000);
  const Error shorter = lab_.CallError("w1", "job.set", {{"name", "a"}, {"lost_ms", 1000}});
  EXPECT_EQ(shorter.code, ErrorCode::kConflict);
  EXPECT_THAT(shorter.message, HasSubstr("cannot become shorter while it runs"));
  lab_.Call("w1", "job.set", {{"name", "a"}, {"lost_ms", 0}});
  EXPECT_EQ(lab_.CallError("w1", "job.set", {{"name", "a"}, {"lost_ms", 5000}}).code, ErrorCode::kConflict) << "nobody pinged for 0";
  lab_.Leave(job.ranks);
}

TEST_F(DaemonJobs, a_user_with_enough_jobs_is_refused_another_one) {
  for (const char* host : {"w2", "a1"}) lab_.Start(host);
  lab_.Start("w1", "[quota]\njobs_per_user = 1\n");
  auto first = lab_.Join("first", {{"w1", 0}, {"w2", 1}});
  ASSERT_TRUE(first[0].ok) << first[0].error.ToString();
  auto second = lab_.Join("second", {{"w1", 0, 1}});
  EXPECT_FALSE(second[0].ok);
  EXPECT_EQ(second[0].error.code, ErrorCode::kPermission);
  EXPECT_THAT(second[0].error.message, HasSubstr("(first), jobs_per_user = 1 in [quota] of host w1"));
  lab_.Leave(first);
  EXPECT_TRUE(WaitUntil([&] { return lab_.Join("second", {{"w1", 0, 1}})[0].ok; }));
}

TEST_F(DaemonJobs, slots_are_limited_by_job_and_by_user_where_they_are) {
  for (const char* host : {"w1", "w2"}) lab_.Start(host);
  lab_.Start("a1", "[quota]\nslots_per_job = 1024\nslots_per_user = 1500\n");
  lab_.Call("w1", "job.create", {{"name", "big"}, {"world_size", 2}, {"slots", 512}, {"classes", 2}});
  auto big = lab_.Join("big", {{"w1", 0}, {"w2", 1}});
  for (const Joined& rank : big) {
    EXPECT_FALSE(rank.ok);
    EXPECT_THAT(rank.error.message, HasSubstr("'big' needs 1280 slots, slots_per_job = 1024 in [quota] of host a1"));
    EXPECT_THAT(rank.error.hint, HasSubstr("--slots"));
  }
  auto first = lab_.Join("first", {{"w1", 0}, {"w2", 1}});  // 768
  ASSERT_TRUE(first[0].ok) << first[0].error.ToString();
  auto second = lab_.Join("second", {{"w1", 0}, {"w2", 1}});
  EXPECT_FALSE(second[0].ok);
  EXPECT_THAT(second[0].error.message, HasSubstr("holds 768 there already, slots_per_user = 1500 in [quota] of host a1"));
}

}  // namespace
}  // namespace mlnet::test
