// SPDX-License-Identifier: Apache-2.0
// What the store keeps of jobs that have ended, what the loop reads of them, and that what is dropped leaves neither
// counters nor a way to be taken for something later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "control/job.h"
#include "unit/daemon/store_fixture.h"

namespace mlnet::daemon {
namespace {

using control::JobView;
using ::testing::ElementsAre;

constexpr uint32_t kHourMs = 3'600'000;

class StoreRetention : public AnyStore {
 protected:
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
};
MLNET_FOR_ALL_STORES(StoreRetention);

TEST_P(StoreRetention, of_ended_jobs_the_latest_stay) {
  const auto opened = Open({2, 0});
  Store& store = *opened;
  for (const char* name : {"d", "b", "c", "a"}) End(store, name);
  EXPECT_THAT(Names(store.Load()), ElementsAre("a", "c"));
}

TEST_P(StoreRetention, store_does_not_grow_with_the_jobs_that_ended) {
  const auto opened = Open({32, 0});
  Store& store = *opened;
  for (int i = 0; i < 600; ++i) {
    const std::string name = "job" + std::to_string(i);
    Update(store, name, [](JobView&) {});
    ASSERT_TRUE(store.SaveCounters(name, 7, {{"rank 0", {{"x", 1}}}, {"host w1", {{"x", 2}}}}));
    End(store, name);
  }
  EXPECT_EQ(store.Load()->jobs.size(), 32u);
  EXPECT_EQ(backend_->NumCounters(), "64");
  EXPECT_TRUE(store.LoadOpen({})->jobs.empty());
}

TEST_P(StoreRetention, job_that_ended_just_now_stays_however_many_did) {
  const auto opened = Open({2, kHourMs});
  Store& store = *opened;
  for (const char* name : {"a", "b", "c", "d"}) End(store, name);
  EXPECT_EQ(Names(store.Load()).size(), 4u);
  backend_->MakeOlder("a", kHourMs + 1);
  End(store, "e");
  EXPECT_THAT(Names(store.Load()), ElementsAre("b", "c", "d", "e"));
}

TEST_P(StoreRetention, declared_running_and_connected_jobs_stay) {
  const auto opened = Open({0, 0});
  Store& store = *opened;
  Update(store, "declared", [](JobView& view) {
    view.job.declared = true;
    view.job.state = control::kClosed;
  });
  Update(store, "running", [](JobView& view) { SetRunning(view); });
  Update(store, "connected", [](JobView& view) {
    view.members = {{7, 0, "w1", 1, true, false, 0, ""}};
    view.job.state = control::kFailed;
  });
  End(store, "gone");
  EXPECT_THAT(Names(store.Load()), ElementsAre("connected", "declared", "running"));
  Update(store, "connected", [](JobView& view) { MemberGone(view, 0, /*orderly=*/true, 0); });
  EXPECT_THAT(Names(store.Load()), ElementsAre("declared", "running")) << "the last rank has left";
}

TEST_P(StoreRetention, loop_reads_what_is_not_over_and_what_it_names) {
  const auto opened = Open();
  Store& store = *opened;
  for (const char* name : {"m", "a", "z"}) End(store, name);
  Update(store, "k", [](JobView& view) { SetRunning(view); });
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

TEST_P(StoreRetention, counters_are_kept_per_incarnation_and_go_with_it) {
  const auto opened = Open();
  Store& store = *opened;
  for (const char* name : {"demo", "other"}) Update(store, name, [](JobView&) {});
  ASSERT_TRUE(store.SaveCounters("demo", 7, {{"rank 0", {{"x", 1}}}, {"rank 1", {{"x", 2}}}}));
  ASSERT_TRUE(store.SaveCounters("demo", 7, {{"rank 0", {{"x", 3}}}}));
  ASSERT_TRUE(store.SaveCounters("other", 7, {{"rank 0", {{"x", 5}}}}));
  const auto counters = store.LoadCounters({{"other", 7}, {"demo", 8}, {"demo", 7}});
  ASSERT_TRUE(counters);
  ASSERT_EQ(counters->size(), 3u);
  ASSERT_EQ((*counters)[0].size(), 1u);
  EXPECT_EQ((*counters)[0][0].body["x"], 5);
  EXPECT_EQ((*counters)[1].size(), 0u) << "another incarnation";
  ASSERT_EQ((*counters)[2].size(), 2u);
  EXPECT_EQ((*counters)[2][0].body["x"], 3);
  for (const char* name : {"demo", "other"}) Update(store, name, [](JobView& view) { ++view.job.incarnation; });
  EXPECT_EQ(backend_->NumCounters(), "0");
  // From a host that hears late of it.
  ASSERT_TRUE(store.SaveCounters("demo", 7, {{"host w1", {{"x", 4}}}}));
  EXPECT_EQ(backend_->NumCounters(), "0");
}

TEST_P(StoreRetention, counters_that_nobody_can_read_hide_no_other_jobs) {
  const auto opened = Open();
  Store& store = *opened;
  for (const char* name : {"demo", "other"}) {
    Update(store, name, [](JobView&) {});
    ASSERT_TRUE(store.SaveCounters(name, 7, {{"rank 0", {{"x", 1}}}}));
  }
  backend_->BreakCounters("demo", 7, "rank 0");
  const auto counters = store.LoadCounters({{"demo", 7}, {"other", 7}});
  ASSERT_TRUE(counters);
  ASSERT_EQ(counters->size(), 2u);
  EXPECT_EQ((*counters)[0].size(), 0u);
  EXPECT_EQ((*counters)[1].size(), 1u);
}

TEST_P(StoreRetention, counters_of_deleted_and_dropped_jobs_go_and_late_ones_are_not_kept) {
  const auto opened = Open({0, 0});
  Store& store = *opened;
  for (const char* name : {"deleted", "dropped"}) {
    Update(store, name, [](JobView&) {});
    ASSERT_TRUE(store.SaveCounters(name, 7, {{"rank 0", {{"x", 1}}}}));
  }
  EXPECT_EQ(backend_->NumCounters(), "2");
  ASSERT_TRUE(store.UpdateJob("deleted", [](std::optional<JobView>& view) -> Result<void> {
    view.reset();
    return {};
  }));
  EXPECT_EQ(backend_->NumCounters(), "1");
  End(store, "dropped");
  EXPECT_EQ(backend_->NumCounters(), "0");
  for (const char* name : {"deleted", "dropped"}) ASSERT_TRUE(store.SaveCounters(name, 7, {{"host w1", {{"x", 1}}}}));
  EXPECT_EQ(backend_->NumCounters(), "0");
}

TEST_P(StoreRetention, name_that_was_dropped_never_gets_numbers_of_before) {
  std::set<std::pair<uint16_t, uint16_t>> seen;
  for (int run = 0; run < 3; ++run) {
    const auto opened = Open({1, 0});
  Store& store = *opened;  // as after a restart
    for (const char* name : {"demo", "other", "demo", "third"}) {
      control::Numbering given;
      Update(store, name, [&](JobView& view) {
        const auto numbers = store.TakeNumbers(view.job.job_id);
        ASSERT_TRUE(numbers);
        given = *numbers;
        view.job.job_id = given.job_id;
        SetRunning(view);
      });
      EXPECT_TRUE(seen.emplace(given.job_id, given.epoch).second) << name << ": " << given.job_id << "/" << given.epoch;
      End(store, name);
    }
    EXPECT_THAT(Names(store.Load()), ElementsAre("third"));
  }
  EXPECT_LE(seen.rbegin()->first, 2) << "ids of dropped jobs are free again";
}

}  // namespace
}  // namespace mlnet::daemon
