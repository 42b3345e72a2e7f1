// SPDX-License-Identifier: Apache-2.0
// What only the store in a file has: the file, its schemas, and the switch to WAL.
#include "daemon/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "unit/daemon/sql.h"
#include "unit/temp_folder.h"

namespace mlnet::daemon {
namespace {

using control::JobView;
using ::testing::ElementsAre;

class Sqlite : public ::testing::Test {
 protected:
  std::unique_ptr<Store> Open(const Retention& retention = {}) const {
    auto store = SqliteStore::Open(path_, retention);
    EXPECT_TRUE(store) << store.error().ToString();
    return std::move(*store);
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

TEST(sqlite_start, daemons_that_start_at_once_all_open_it) {
  constexpr int kRounds = 20, kDaemons = 6;
  for (int round = 0; round < kRounds; ++round) {
    const test::TempFolder folder;
    const std::string path = folder / "store.db";
    std::atomic<int> waiting{kDaemons};
    std::vector<std::string> errors(kDaemons);
    std::vector<std::thread> daemons;
    for (int i = 0; i < kDaemons; ++i) {
      daemons.emplace_back([&, i] {
        for (--waiting; waiting > 0;) std::this_thread::yield();
        if (auto store = SqliteStore::Open(path); !store) errors[static_cast<size_t>(i)] = store.error().ToString();
      });
    }
    for (std::thread& daemon : daemons) daemon.join();
    for (const std::string& error : errors) ASSERT_EQ(error, "") << "round " << round;
  }
}

TEST(sqlite_start, file_that_is_no_database_is_an_error) {
  const test::TempFolder folder;
  const std::string path = folder / "store.db";
  FILE* file = ::fopen(path.c_str(), "w");
  std::fputs("this is not a database, and long enough to be read as a page header", file);
  std::fclose(file);
  EXPECT_FALSE(SqliteStore::Open(path));
}

TEST_F(Sqlite, store_of_before_is_taken_over_with_its_jobs_and_numbers) {
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
      ('live', 2, '{"job": {"name": "live", "incarnation": 6, "state": "joining", "job_id": 2}}');)"),
            "");
  Open();
  const auto opened = Open({0, 0});
  Store& store = *opened;
  EXPECT_THAT(Names(store.Load()), ElementsAre("live", "old"));
  EXPECT_THAT(Names(store.LoadOpen({})), ElementsAre("live"));
  EXPECT_EQ(NumCounters(), "0") << "of an incarnation that is gone, and of a job that is gone";
  ASSERT_TRUE(store.SaveCounters("live", 6, {{"rank 0", {{"x", 1}}}}));
  EXPECT_EQ(NumCounters(), "1");
  ASSERT_TRUE(store.UpdateJob("more", [](std::optional<JobView>& view) -> Result<void> {
    view.emplace();
    view->job.name = "more";
    view->job.state = control::kClosed;
    return {};
  }));
  EXPECT_THAT(Names(store.Load()), ElementsAre("live"));
  ASSERT_TRUE(store.UpdateJob("again", [&](std::optional<JobView>&) -> Result<void> {
    EXPECT_EQ(store.TakeNumbers(0)->epoch, 10);
    return {};
  }));
}

TEST_F(Sqlite, store_of_a_later_version_is_refused_and_left_alone) {
  Open();
  ASSERT_EQ(test::Sql(path_, "UPDATE meta SET value = 3 WHERE key = 'schema'; DROP INDEX jobs_over"), "");
  const auto refused = SqliteStore::Open(path_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(test::Sql(path_, "SELECT COUNT(*) FROM sqlite_master WHERE name = 'jobs_over'"), "0");
}

}  // namespace
}  // namespace mlnet::daemon
