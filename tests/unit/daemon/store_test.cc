// SPDX-License-Identifier: Apache-2.0
// What every store promises, with several connections as several daemons have them.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "unit/daemon/store_fixture.h"

namespace mlnet::daemon {
namespace {

using control::JobView;

class AStore : public AnyStore {};
MLNET_FOR_ALL_STORES(AStore);

Result<void> Create(Store& store, const std::string& name, uint16_t job_id = 0) {
  return store.UpdateJob(name, [&](std::optional<JobView>& view) -> Result<void> {
    view.emplace();
    view->job.name = name;
    view->job.incarnation = 1;
    view->job.job_id = job_id;
    return {};
  });
}

TEST_P(AStore, what_one_daemon_writes_another_sees_as_a_change_once) {
  const auto opened_a = Open(), opened_b = Open();
  Store &a = *opened_a, &b = *opened_b;
  EXPECT_TRUE(*b.Changed(Snapshot{})) << "nothing was read yet";
  const auto empty = b.Load();
  ASSERT_TRUE(empty);
  EXPECT_FALSE(*b.Changed(*empty));
  ASSERT_TRUE(Create(a, "demo"));
  EXPECT_TRUE(BecomesChanged(b, *empty));
  const auto snapshot = b.Load();
  ASSERT_TRUE(snapshot);
  ASSERT_EQ(snapshot->jobs.size(), 1u);
  EXPECT_EQ(snapshot->jobs[0].job.name, "demo");
  EXPECT_FALSE(*b.Changed(*snapshot));
}

TEST_P(AStore, own_writes_are_changes_too) {
  const auto opened = Open();
  Store& store = *opened;
  const auto empty = store.Load();
  ASSERT_TRUE(Create(store, "demo"));
  EXPECT_TRUE(*store.Changed(*empty));
}

TEST_P(AStore, change_stays_one_when_a_later_load_is_thrown_away) {
  const auto opened_w1 = Open(), opened_a1 = Open();
  Store &w1 = *opened_w1, &a1 = *opened_a1;
  ASSERT_TRUE(Create(w1, "demo"));
  const auto kept = w1.Load();
  ASSERT_TRUE(a1.UpdateJob("demo", [](std::optional<JobView>& view) -> Result<void> {
    SetRunning(*view, control::kPreparing);
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

TEST_P(AStore, change_stays_one_until_it_could_be_loaded) {
  const auto opened_a = Open(), opened_b = Open();
  Store &a = *opened_a, &b = *opened_b;
  const auto kept = b.Load();
  ASSERT_TRUE(Create(a, "demo"));
  EXPECT_TRUE(BecomesChanged(b, *kept));
  EXPECT_TRUE(*b.Changed(*kept)) << "asking is not loading";
  backend_->Break("demo");
  EXPECT_FALSE(b.Load());
  EXPECT_FALSE(b.LoadOpen({}));
  EXPECT_TRUE(*b.Changed(*kept));
  backend_->Mend("demo");
  EXPECT_TRUE(*b.Changed(*kept));
  EXPECT_EQ(b.LoadOpen({})->jobs.size(), 1u) << "nor does a failure leave a transaction open";
}

TEST_P(AStore, heartbeats_and_counters_are_no_changes) {
  const auto opened_a = Open(), opened_b = Open();
  Store &a = *opened_a, &b = *opened_b;
  control::HostRecord host;
  host.host = "w1";
  ASSERT_TRUE(a.SaveHost(host));
  ASSERT_TRUE(Create(a, "demo"));
  const auto snapshot = b.Load();
  ASSERT_TRUE(a.Beat("w1", 77));
  ASSERT_TRUE(a.SaveCounters("demo", 1, {{"rank 0", {{"x", 1}}}}));
  EXPECT_EQ(b.Load()->generation, snapshot->generation);
  EXPECT_FALSE(*b.Changed(*snapshot));
  EXPECT_EQ(b.LoadHosts()->at(0).heartbeat_ms, 77u);
}

TEST_P(AStore, a_name_of_any_bytes_is_no_exception) {
  const auto opened = Open();
  control::HostRecord host;
  host.host = "w1";
  host.ifaces.emplace_back().name = "eth\x82";  // the kernel lets an interface be called so
  ASSERT_TRUE(opened->SaveHost(host));
  EXPECT_EQ(opened->LoadHosts()->at(0).ifaces.at(0).name, "eth\xef\xbf\xbd");
  ASSERT_TRUE(Create(*opened, "demo"));
  ASSERT_TRUE(opened->SaveCounters("demo", 1, {{"rank 0", {{"x", "\x82"}}}}));
  ASSERT_TRUE(opened->UpdateJob("demo", [](std::optional<JobView>& view) -> Result<void> {
    view->job.reason = "eth\x82";
    return {};
  }));
  EXPECT_EQ(opened->Load()->jobs.at(0).job.reason, "eth\xef\xbf\xbd");
}

TEST_P(AStore, error_of_a_change_comes_back_and_what_it_left_is_kept) {
  const auto opened = Open();
  Store& store = *opened;
  ASSERT_TRUE(Create(store, "demo"));
  const auto done = store.UpdateJob("demo", [](std::optional<JobView>& view) -> Result<void> {
    view->job.state = control::kFailed;
    return Err(ErrorCode::kMismatch, "no");
  });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kMismatch);
  EXPECT_EQ(store.Load()->jobs[0].job.state, control::kFailed);
}

TEST_P(AStore, job_that_is_let_go_is_gone) {
  const auto opened = Open();
  Store& store = *opened;
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

TEST_P(AStore, pair_of_job_id_and_epoch_is_never_given_twice) {
  std::set<std::pair<uint16_t, uint16_t>> seen;
  for (int run = 0; run < 3; ++run) {
    const auto opened = Open();
    Store& store = *opened;  // as after a restart
    for (const uint16_t wanted : {0, 1, 0, 5, 1}) {
      const auto n = Take(store, wanted);
      EXPECT_GT(n.job_id, 0);
      EXPECT_GT(n.epoch, 0);
      EXPECT_TRUE(seen.emplace(n.job_id, n.epoch).second) << n.job_id << "/" << n.epoch;
      EXPECT_TRUE(wanted == 0 || n.job_id == wanted);
    }
  }
}

TEST_P(AStore, id_of_another_job_is_not_given) {
  const auto opened = Open();
  Store& store = *opened;
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

TEST_P(AStore, id_without_epochs_left_is_passed_over) {
  const auto opened = Open();
  Store& store = *opened;
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

TEST_P(AStore, concurrent_daemons_never_lose_an_update) {
  ASSERT_TRUE(Create(*Open(), "demo"));
  constexpr int kThreads = 4, kRounds = 25;
  std::atomic<int> num_failed = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const auto opened = Open();
      Store& store = *opened;
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
  EXPECT_EQ(Open()->Load()->jobs[0].job.world_size, kThreads * kRounds);
}

TEST_P(AStore, concurrent_daemons_never_give_the_same_numbers) {
  constexpr int kThreads = 4, kRounds = 8;
  std::mutex mutex;
  std::multiset<std::pair<uint16_t, uint16_t>> pairs;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto opened = Open();
      for (int i = 0; i < kRounds; ++i) {
        control::Numbering given;
        const auto done = opened->UpdateJob("job" + std::to_string(t), [&](std::optional<JobView>& view) -> Result<void> {
          const auto numbers = opened->TakeNumbers(0);
          if (!numbers) return tl::make_unexpected(numbers.error());
          given = *numbers;
          view.emplace();
          view->job.name = "job" + std::to_string(t);
          view->job.job_id = given.job_id;
          return {};
        });
        EXPECT_TRUE(done) << done.error().ToString();
        const std::lock_guard lock(mutex);
        pairs.emplace(given.job_id, given.epoch);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& pair : pairs) EXPECT_EQ(pairs.count(pair), 1u) << pair.first << "/" << pair.second;
  std::set<uint16_t> ids;
  const auto snapshot = Open()->Load();
  ASSERT_TRUE(snapshot);
  for (const JobView& view : snapshot->jobs) ids.insert(view.job.job_id);
  EXPECT_EQ(ids.size(), size_t{kThreads}) << "of jobs that are there at the same time";
}

}  // namespace
}  // namespace mlnet::daemon
