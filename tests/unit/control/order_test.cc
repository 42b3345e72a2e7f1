// SPDX-License-Identifier: Apache-2.0
// From job records to grants, and what of a job's progress is noted.
#include "control/order.h"

#include <gtest/gtest.h>

namespace mlnet::control {
namespace {

constexpr uint64_t kMiB = 1 << 20;

JobView Moving(const std::string& name, const std::string& order, uint64_t work_bytes = 0, uint64_t done_bytes = 0) {
  JobView view;
  view.job.name = name;
  view.job.state = kReady;
  view.job.spec.order = order;
  view.job.progress.is_moving = true;
  view.job.progress.work_bytes = work_bytes;
  view.job.progress.done_bytes = done_bytes;
  for (const char* host : {"w1", "w2"}) view.job.plan.ports.push_back({host, "eth0", "", ""});
  return view;
}

TEST(Order, jobs_that_do_not_move_take_nothing_from_the_others) {
  std::vector<JobView> jobs = {Moving("a", "fair"), Moving("b", "fair"), Moving("c", "fair"), Moving("d", "fair")};
  jobs[1].job.progress.is_moving = false;
  jobs[2].job.state = kFailed;
  const auto shares = SharesOf(jobs, 8, 0);
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_DOUBLE_EQ(shares.at("a").share, 0.5);
  EXPECT_DOUBLE_EQ(shares.at("d").share, 0.5);
}

TEST(Order, weights_become_windows) {
  std::vector<JobView> jobs = {Moving("a", "fair"), Moving("b", "fair")};
  jobs[1].job.spec.weight = 3;
  const auto shares = SharesOf(jobs, 8, 0);
  EXPECT_EQ(GrantOf(shares.at("a")), (Grant{32, 0, false, -1}));
  EXPECT_EQ(GrantOf(shares.at("b")), (Grant{96, 0, false, -1}));
  EXPECT_EQ(GrantOf({}), Grant{});  // alone: no limit
  EXPECT_EQ(GrantOf({.share = 0.001}).window, 2u);
}

TEST(Order, who_waits_has_a_packet_now_and_then_and_a_lower_mark) {
  const std::vector<JobView> jobs = {Moving("a", "shortest", 300), Moving("b", "shortest", 100), Moving("c", "shortest", 200)};
  const auto shares = SharesOf(jobs, 8, 0);
  EXPECT_EQ(GrantOf(shares.at("b")), Grant{});
  EXPECT_EQ(GrantOf(shares.at("c")), (Grant{8, 0, true, 1}));  // next: it takes over at once
  EXPECT_EQ(GrantOf(shares.at("a")), (Grant{1, 20'000, true, 1}));
}

TEST(Order, a_hint_that_was_too_small_counts_as_none) {
  const std::vector<JobView> jobs = {Moving("a", "shortest", 100, 100), Moving("b", "shortest", 1000, 950)};
  EXPECT_FALSE(SharesOf(jobs, 8, 0).at("b").waits);  // 50 left against 100 done and nobody knows
}

TEST(Order, waiting_is_measured_by_what_the_job_takes_alone) {
  std::vector<JobView> jobs = {Moving("front", "shortest", 100 * kMiB, 50 * kMiB), Moving("old", "shortest", 1000 * kMiB)};
  jobs[0].job.progress.is_in_front = true;
  jobs[0].job.progress.since_ms = 1'000'000;
  // The one in front has done 50 MiB in 5 s: the other takes 100 s alone, and is overdue after 800 s.
  jobs[1].job.progress.since_ms = 1'005'000 - 799'000;
  EXPECT_FALSE(SharesOf(jobs, 8, 1'005'000).at("old").is_overdue);
  jobs[1].job.progress.since_ms = 1'005'000 - 801'000;
  EXPECT_TRUE(SharesOf(jobs, 8, 1'005'000).at("old").is_overdue);
}

TEST(Order, progress_is_noted_in_steps_and_at_turns) {
  JobRecord job = Moving("a", "shortest").job;
  job.progress = {};
  plan::LinkShare waits{.share = 0, .waits = true};
  EXPECT_TRUE(NoteProgress(job, {160 * kMiB, 0, true}, nullptr, 8, 1000));  // begins to move
  EXPECT_TRUE(job.progress.is_moving);
  EXPECT_EQ(job.progress.work_bytes, 160 * kMiB);
  EXPECT_FALSE(NoteProgress(job, {160 * kMiB, 9 * kMiB, true}, &waits, 8, 3000));
  EXPECT_TRUE(NoteProgress(job, {160 * kMiB, 10 * kMiB, true}, &waits, 8, 4000));  // a sixteenth
  EXPECT_EQ(job.progress.since_ms, 1000u);  // no turn: it still waits since then
  plan::LinkShare front{};
  EXPECT_TRUE(NoteProgress(job, {160 * kMiB, 10 * kMiB, true}, &front, 8, 5000));
  EXPECT_TRUE(job.progress.is_in_front);
  EXPECT_EQ(job.progress.waited_ms, 4000u);
  EXPECT_FALSE(NoteProgress(job, {160 * kMiB, 10 * kMiB, true}, &front, 8, 5100));
  // A second in front pays for 8 of waiting.
  EXPECT_TRUE(NoteProgress(job, {160 * kMiB, 20 * kMiB, true}, &waits, 8, 5250));
  EXPECT_EQ(job.progress.waited_ms, 2000u);
  EXPECT_EQ(job.progress.served_ms, 250u);
  EXPECT_TRUE(NoteProgress(job, {160 * kMiB, 20 * kMiB, false}, nullptr, 8, 6250));  // stops
  EXPECT_EQ(job.progress.waited_ms, 3000u);
  EXPECT_FALSE(NoteProgress(job, {160 * kMiB, 20 * kMiB, false}, nullptr, 8, 99'000));
}

TEST(Order, a_fair_job_is_not_noted_for_progress_alone) {
  JobRecord job = Moving("a", "fair").job;
  plan::LinkShare share{};
  job.progress.is_in_front = true;
  EXPECT_FALSE(NoteProgress(job, {0, 500 * kMiB, true}, &share, 8, 1000));
}

TEST(Order, the_operators_word_goes_before_the_ranks) {
  JobRecord job = Moving("a", "shortest").job;
  job.spec.work_bytes = 5000;
  EXPECT_TRUE(NoteProgress(job, {7000, 0, true}, nullptr, 8, 0));
  EXPECT_EQ(job.progress.work_bytes, 5000u);
}

}  // namespace
}  // namespace mlnet::control
