// SPDX-License-Identifier: Apache-2.0
// What the store keeps of jobs that have ended, what the loop reads of them, and that what is dropped leaves neither
// counters nor a way to be taken for something later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "control/job.h"
#include "daemon/store.h"
#include "unit/daemon/sql.h"
#include "unit/temp_folder.h"

namespace mlnet::daemon {
namespace {

using control::JobView;
using ::testing::ElementsAre;

constexpr uint32_t kHourMs = 3'600'000;

class StoreRetention : public ::testing::Test {
 protected:
  Store Open(const Retention& retention = {}) const {
    auto store = Store::Open(path_, retention);
    EXPECT_TRUE(store) << store.error().ToString();
    return std::move(*store);
  }

  // `change` gets the job of that name, which is made where there is none.
  static void Update(Store& store, const std::string& name, const std::function<void(JobView&)>& change) {
    const auto done = store.UpdateJob(name, [&](std::optional<JobView>& view) -> Result<void> {
      if (!view) {
        view.emplace();
        view->job.name = name;
        view->job.incarnation = 7;
      }
      change(*view);
      return {};
    });
    ASSERT_TRUE(done) << done.error().ToString();
  }

  static void End(Store& store, const std::string& name) {
    Update(store, name, [](JobView& view) { view.job.state = control::kClosed; });
  }

  static std::vector<std::string> Names(const Result<Snapshot>& snapshot) {
    std::vector<std::string> names;
    EXPECT_TRUE(snapshot);
    for (const JobView& view : snapshot->jobs) names.push_back(view.job.name);
    return names;
  }

  std::string NumCounters() const { return test::Sql(path_, "SELECT COUNT(*) FROM counters"); }

  const test::TempFolder folder_;
  const std::string path_ = folder_ / "store.db";
};

TEST_F(StoreRetention, of_ended_jobs_the_latest_stay) {
  Store store = Open({2, 0});
  for (const char* name : {"d", "b", "c", "a"}) End(store, name);
  EXPECT_THAT(Names(store.Load()), ElementsAre("a", "c"));
}

TEST_F(StoreRetention, store_does_not_grow_with_the_jobs_that_ended) {
  Store store = Open({32, 0});
  for (int i = 0; i < 600; ++i) {
    const std::string name = "job" + std::to_string(i);
    Update(store, name, [](JobView&) {});
    ASSERT_TRUE(store.SaveCounters(name, 7, {{"rank 0", {{"x", 1}}}, {"host w1", {{"x", 2}}}}));
    End(store, name);
  }
  EXPECT_EQ(store.Load()->jobs.size(), 32u);
  EXPECT_EQ(NumCounters(), "64");
  EXPECT_TRUE(store.LoadOpen({})->jobs.empty());
}

TEST_F(StoreRetention, job_that_ended_just_now_stays_however_many_did) {
  Store store = Open({2, kHourMs});
  for (const char* name : {"a", "b", "c", "d"}) End(store, name);
  EXPECT_EQ(Names(store.Load()).size(), 4u);
  ASSERT_EQ(test::Sql(path_, "UPDATE jobs SET over_ms = over_ms - 3600001 WHERE name = 'a'"), "");
  End(store, "e");
  EXPECT_THAT(Names(store.Load()), ElementsAre("b", "c", "d", "e"));
}

TEST_F(StoreRetention, declared_running_and_connected_jobs_stay) {
  Store store = Open({0, 0});
  Update(store, "declared", [](JobView& view) {
    view.job.declared = true;
    view.job.state = control::kClosed;
  });
  Update(store, "running", [](JobView& view) { view.job.state = control::kReady; });
  Update(store, "connected", [](JobView& view) {
    view.members = {{7, 0, "w1", 1, true, false, 0, ""}};
    view.job.state = control::kFailed;
  });
  End(store, "gone");
  EXPECT_THAT(Names(store.Load()), ElementsAre("connected", "declared", "running"));
  Update(store, "connected", [](JobView& view) { MemberGone(view, 0, /*orderly=*/true, 0); });
  EXPECT_THAT(Names(store.Load()), ElementsAre("declared", "running")) << "the last rank has left";
}

TEST_F(StoreRetention, loop_reads_what_is_not_over_and_what_it_names) {
  Store store = Open();
  for (const char* name : {"m", "a", "z"}) End(store, name);
  Update(store, "k", [](JobView& view) { view.job.state = control::kReady; });
  Update(store, "x", [](JobView& view) {  // an operator wants it gone: somebody has to do it
    view.job.state = control::kFailed;
    view.job.deleted = true;
  });
  EXPECT_THAT(Names(store.LoadOpen({})), ElementsAre("k", "x"));
  EXPECT_THAT(Names(store.LoadOpen({"a", "k", "none", "x"})), ElementsAre("a", "k", "x"));
  EXPECT_THAT(Names(store.Load()), ElementsAre("a", "k", "m", "x", "z"));
  Update(store, "m", [](JobView& view) { view.job.state = control::kJoining; });
  EXPECT_THAT(Names(store.LoadOpen({})), ElementsAre("k", "m", "x")) << "joined again";
}

TEST_F(StoreRetention, counters_are_kept_per_incarnation_and_go_with_it) {
  Store store = Open();
  Update(store, "demo", [](JobView&) {});
  ASSERT_TRUE(store.SaveCounters("demo", 7, {{"rank 0", {{"x", 1}}}, {"rank 1", {{"x", 2}}}}));
  ASSERT_TRUE(store.SaveCounters("demo", 7, {{"rank 0", {{"x", 3}}}}));
  const auto counters = store.LoadCounters("demo", 7);
  ASSERT_TRUE(counters);
  ASSERT_EQ(counters->size(), 2u);
  EXPECT_EQ((*counters)[0].body["x"], 3);
  Update(store, "demo", [](JobView& view) { ++view.job.incarnation; });
  EXPECT_EQ(NumCounters(), "0");
  // From a host that hears late of it.
  ASSERT_TRUE(store.SaveCounters("demo", 7, {{"host w1", {{"x", 4}}}}));
  EXPECT_EQ(NumCounters(), "0");
}

TEST_F(StoreRetention, counters_of_deleted_and_dropped_jobs_go_and_late_ones_are_not_kept) {
  Store store = Open({0, 0});
  for (const char* name : {"deleted", "dropped"}) {
    Update(store, name, [](JobView&) {});
    ASSERT_TRUE(store.SaveCounters(name, 7, {{"rank 0", {{"x", 1}}}}));
  }
  EXPECT_EQ(NumCounters(), "2");
  ASSERT_TRUE(store.UpdateJob("deleted", [](std::optional<JobView>& view) -> Result<void> {
    view.reset();
    return {};
  }));
  EXPECT_EQ(NumCounters(), "1");
  End(store, "dropped");
  EXPECT_EQ(NumCounters(), "0");
  for (const char* name : {"deleted", "dropped"}) ASSERT_TRUE(store.SaveCounters(name, 7, {{"host w1", {{"x", 1}}}}));
  EXPECT_EQ(NumCounters(), "0");
}

TEST_F(StoreRetention, name_that_was_dropped_never_gets_numbers_of_before) {
  std::set<std::pair<uint16_t, uint16_t>> seen;
  for (int run = 0; run < 3; ++run) {
    Store store = Open({1, 0});  // as after a restart
    for (const char* name : {"demo", "other", "demo", "third"}) {
      control::Numbering given;
      Update(store, name, [&](JobView& view) {
        const auto numbers = store.TakeNumbers(view.job.job_id);
        ASSERT_TRUE(numbers);
        given = *numbers;
        view.job.job_id = given.job_id;
        view.job.state = control::kReady;
      });
      EXPECT_TRUE(seen.emplace(given.job_id, given.epoch).second) << name << ": " << given.job_id << "/" << given.epoch;
      End(store, name);
    }
    EXPECT_THAT(Names(store.Load()), ElementsAre("third"));
  }
  EXPECT_LE(seen.rbegin()->first, 2) << "ids of dropped jobs are free again";
}

TEST_F(StoreRetention, store_of_before_is_taken_over_with_its_jobs_and_numbers) {
  ASSERT_EQ(test::Sql(path_, R"(
    CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
    CREATE TABLE jobs (name TEXT PRIMARY KEY, job_id INTEGER NOT NULL, body TEXT NOT NULL);
    CREATE TABLE epochs (job_id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL);
    CREATE TABLE counters (job TEXT, incarnation INTEGER, source TEXT, body TEXT NOT NULL,
                           PRIMARY KEY (job, incarnation, source));
    INSERT INTO counters VALUES ('live', 5, 'rank 0', '{}'), ('deleted', 4, 'host w1', '{}');
    INSERT INTO meta VALUES ('schema', 1), ('generation', 40);
    INSERT INTO epochs VALUES (1, 9);
    INSERT INTO jobs VALUES
      ('old', 1, '{"job": {"name": "old", "incarnation": 5, "state": "closed", "job_id": 1}}'),
      ('live', 2, '{"job": {"name": "live", "incarnation": 6, "state": "ready", "job_id": 2}}');)"),
            "");
  { Store store = Open(); }
  Store store = Open({0, 0});
  EXPECT_THAT(Names(store.Load()), ElementsAre("live", "old"));
  EXPECT_THAT(Names(store.LoadOpen({})), ElementsAre("live"));
  EXPECT_EQ(NumCounters(), "0") << "of an incarnation that is gone, and of a job that is gone";
  ASSERT_TRUE(store.SaveCounters("live", 6, {{"rank 0", {{"x", 1}}}}));
  EXPECT_EQ(NumCounters(), "1");
  End(store, "more");
  EXPECT_THAT(Names(store.Load()), ElementsAre("live"));
  Update(store, "again", [&](JobView&) { EXPECT_EQ(store.TakeNumbers(0)->epoch, 10); });
}

TEST_F(StoreRetention, store_of_a_later_version_is_refused_and_left_alone) {
  { Store store = Open(); }
  ASSERT_EQ(test::Sql(path_, "UPDATE meta SET value = 3 WHERE key = 'schema'; DROP INDEX jobs_over"), "");
  const auto refused = Store::Open(path_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(test::Sql(path_, "SELECT COUNT(*) FROM sqlite_master WHERE name = 'jobs_over'"), "0");
}

}  // namespace
}  // namespace mlnet::daemon
