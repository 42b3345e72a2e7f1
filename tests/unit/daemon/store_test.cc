// SPDX-License-Identifier: Apache-2.0
// The shared store, with several connections as several daemons have them.
#include "daemon/store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "unit/daemon/sql.h"
#include "unit/temp_folder.h"

namespace mlnet::daemon {
namespace {

using control::JobView;

Store Open(const std::string& path) {
  auto store = Store::Open(path);
  EXPECT_TRUE(store) << store.error().ToString();
  return std::move(*store);
}

Result<void> Create(Store& store, const std::string& name, uint16_t job_id = 0) {
  return store.UpdateJob(name, [&](std::optional<JobView>& view) -> Result<void> {
    view.emplace();
    view->job.name = name;
    view->job.incarnation = 1;
    view->job.job_id = job_id;
    return {};
  });
}

TEST(store, what_one_daemon_writes_another_sees_as_a_change_once) {
  const test::TempFolder folder;
  const std::string path = folder / "deep/store.db";
  Store a = Open(path), b = Open(path);
  EXPECT_TRUE(*b.Changed(Snapshot{})) << "nothing was read yet";
  const auto empty = b.Load();
  ASSERT_TRUE(empty);
  EXPECT_FALSE(*b.Changed(*empty));
  ASSERT_TRUE(Create(a, "demo"));
  EXPECT_TRUE(*b.Changed(*empty));
  const auto snapshot = b.Load();
  ASSERT_TRUE(snapshot);
  ASSERT_EQ(snapshot->jobs.size(), 1u);
  EXPECT_EQ(snapshot->jobs[0].job.name, "demo");
  EXPECT_FALSE(*b.Changed(*snapshot));
}

TEST(store, own_writes_are_changes_too) {
  const test::TempFolder folder;
  Store store = Open(folder / "store.db");
  const auto empty = store.Load();
  ASSERT_TRUE(Create(store, "demo"));
  EXPECT_TRUE(*store.Changed(*empty));
}

TEST(store, change_stays_one_when_a_later_load_is_thrown_away) {
  const test::TempFolder folder;
  const std::string path = folder / "store.db";
  Store w1 = Open(path), a1 = Open(path);
  ASSERT_TRUE(Create(w1, "demo"));
  const auto kept = w1.Load();
  ASSERT_TRUE(a1.UpdateJob("demo", [](std::optional<JobView>& view) -> Result<void> {
    view->job.state = control::kPreparing;
    return {};
  }));
  // w1 would plan as well: it looks at the newest hosts, and finds that a1 has planned.
  ASSERT_TRUE(w1.Load());
  ASSERT_TRUE(w1.LoadOpen({}));
  ASSERT_TRUE(w1.LoadHosts());
  ASSERT_TRUE(w1.UpdateJob("demo", [](std::optional<JobView>&) -> Result<void> { return {}; }));
  EXPECT_TRUE(*w1.Changed(*kept));
  EXPECT_FALSE(*w1.Changed(*w1.Load()));
}

TEST(store, change_stays_one_until_it_could_be_loaded) {
  const test::TempFolder folder;
  const std::string path = folder / "store.db";
  Store a = Open(path), b = Open(path);
  const auto kept = b.Load();
  ASSERT_TRUE(Create(a, "demo"));
  EXPECT_TRUE(*b.Changed(*kept));
  EXPECT_TRUE(*b.Changed(*kept)) << "asking is not loading";
  ASSERT_EQ(test::Sql(path, "UPDATE jobs SET body = '{' || body"), "");
  EXPECT_FALSE(b.Load());
  EXPECT_FALSE(b.LoadOpen({}));
  EXPECT_TRUE(*b.Changed(*kept));
  ASSERT_EQ(test::Sql(path, "UPDATE jobs SET body = substr(body, 2)"), "");
  EXPECT_TRUE(*b.Changed(*kept));
  EXPECT_EQ(b.LoadOpen({})->jobs.size(), 1u) << "nor does a failure leave a transaction open";
}

TEST(store, heartbeats_and_counters_are_no_changes) {
  const test::TempFolder folder;
  const std::string path = folder / "deep/store.db";
  Store a = Open(path), b = Open(path);
  control::HostRecord host;
  host.host = "w1";
  ASSERT_TRUE(a.SaveHost(host));
  ASSERT_TRUE(Create(a, "demo"));
  const auto snapshot = b.Load();
  ASSERT_TRUE(a.Beat("w1", 77));
  ASSERT_TRUE(a.SaveCounters("demo", 1, {{"rank 0", {{"x", 1}}}}));
  EXPECT_FALSE(*b.Changed(*snapshot));
  EXPECT_EQ(b.LoadHosts()->at(0).heartbeat_ms, 77u);
}

TEST(store, error_of_a_change_comes_back_and_what_it_left_is_kept) {
  const test::TempFolder folder;
  Store store = Open(folder / "store.db");
  ASSERT_TRUE(Create(store, "demo"));
  const auto done = store.UpdateJob("demo", [](std::optional<JobView>& view) -> Result<void> {
    view->job.state = control::kFailed;
    return Err(ErrorCode::kMismatch, "no");
  });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kMismatch);
  EXPECT_EQ(store.Load()->jobs[0].job.state, control::kFailed);
}

TEST(store, job_that_is_let_go_is_gone) {
  const test::TempFolder folder;
  Store store = Open(folder / "store.db");
  ASSERT_TRUE(Create(store, "demo"));
  ASSERT_TRUE(store.UpdateJob("demo", [](std::optional<JobView>& view) -> Result<void> {
    view.reset();
    return {};
  }));
  EXPECT_TRUE(store.Load()->jobs.empty());
}

control::Numbering Take(Store& store, uint16_t wanted) {
  control::Numbering numbering;
  EXPECT_TRUE(store.UpdateJob("any", [&](std::optional<JobView>&) -> Result<void> {
    auto taken = store.TakeNumbers(wanted);
    if (!taken) return tl::make_unexpected(taken.error());
    numbering = *taken;
    return {};
  }));
  return numbering;
}

TEST(store, pair_of_job_id_and_epoch_is_never_given_twice) {
  const test::TempFolder folder;
  const std::string path = folder / "deep/store.db";
  std::set<std::pair<uint16_t, uint16_t>> seen;
  for (int run = 0; run < 3; ++run) {
    Store store = Open(path);  // as after a restart
    for (const uint16_t wanted : {0, 1, 0, 5, 1}) {
      const auto n = Take(store, wanted);
      EXPECT_GT(n.job_id, 0);
      EXPECT_GT(n.epoch, 0);
      EXPECT_TRUE(seen.emplace(n.job_id, n.epoch).second) << n.job_id << "/" << n.epoch;
      EXPECT_TRUE(wanted == 0 || n.job_id == wanted);
    }
  }
}

TEST(store, id_of_another_job_is_not_given) {
  const test::TempFolder folder;
  Store store = Open(folder / "store.db");
  EXPECT_EQ(Take(store, 0).job_id, 1);
  ASSERT_TRUE(Create(store, "one", 1));
  EXPECT_EQ(Take(store, 0).job_id, 2);
  ASSERT_TRUE(store.UpdateJob("one", [](std::optional<JobView>& view) -> Result<void> {
    view.reset();
    return {};
  }));
  const auto again = Take(store, 0);
  EXPECT_EQ(again.job_id, 1);
  EXPECT_EQ(again.epoch, 2);
}

TEST(store, id_without_epochs_left_is_passed_over) {
  const test::TempFolder folder;
  Store store = Open(folder / "store.db");
  for (int i = 0; i < 3; ++i) Take(store, 1);
  // 65535 epochs by hand would take minutes: the last one is enough.
  ASSERT_TRUE(store.UpdateJob("any", [&](std::optional<JobView>&) -> Result<void> {
    control::Numbering n;
    while (n.epoch < 65535) {
      auto taken = store.TakeNumbers(1);
      if (!taken) return tl::make_unexpected(taken.error());
      n = *taken;
      if (n.job_id != 1) return Err(ErrorCode::kSystem, "another id too early");
    }
    return {};
  }));
  EXPECT_EQ(Take(store, 1).job_id, 2);
  EXPECT_EQ(Take(store, 0).job_id, 2);
}

TEST(store, concurrent_daemons_never_lose_an_update) {
  const test::TempFolder folder;
  const std::string path = folder / "deep/store.db";
  { Store store = Open(path); ASSERT_TRUE(Create(store, "demo")); }
  constexpr int kThreads = 4, kRounds = 25;
  std::atomic<int> num_failed = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      Store store = Open(path);
      for (int i = 0; i < kRounds; ++i) {
        auto done = store.UpdateJob("demo", [](std::optional<JobView>& view) -> Result<void> {
          ++view->job.world_size;
          return {};
        });
        if (!done) ++num_failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_failed, 0);
  EXPECT_EQ(Open(path).Load()->jobs[0].job.world_size, kThreads * kRounds);
}

TEST(store, daemons_that_start_at_once_all_open_it) {
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
        if (auto store = Store::Open(path); !store) errors[static_cast<size_t>(i)] = store.error().ToString();
      });
    }
    for (std::thread& daemon : daemons) daemon.join();
    for (const std::string& error : errors) ASSERT_EQ(error, "") << "round " << round;
  }
}

TEST(store, file_that_is_no_database_is_an_error) {
  const test::TempFolder folder;
  const std::string path = folder / "store.db";
  FILE* file = ::fopen(path.c_str(), "w");
  std::fputs("this is not a database, and long enough to be read as a page header", file);
  std::fclose(file);
  EXPECT_FALSE(Store::Open(path));
}

}  // namespace
}  // namespace mlnet::daemon
