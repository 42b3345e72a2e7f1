// SPDX-License-Identifier: Apache-2.0
// Jobs that lose ranks in the middle of collectives and go on with those who are left, with real daemons and ranks: all of these
// agree on who they are, their sums are of these ranks alone, and nobody waits longer than it said.
#include <chrono>
#include <csignal>

#include "lab/shrink_ranks.h"

namespace mlnet::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class DaemonShrink : public ::testing::Test {
 protected:
  void StartAll(const std::string& more = "") {
    for (const char* host : {"w1", "w2", "w3", "w4", "a1"}) ASSERT_NO_FATAL_FAILURE(lab_.Start(host, more));
  }
  void Cut(const std::string& host) { Shell("ip -n " + lab_.Netns("sw") + " link set p-" + host + " down"); }
  void Mend(const std::string& host) { Shell("ip -n " + lab_.Netns("sw") + " link set p-" + host + " up"); }

  /// The ranks of `job` have begun to sum.
  Json Begin(const ShrinkJob& job) {
    ranks_.Start(job);
    for (size_t r = 0; r < job.hosts.size(); ++r) EXPECT_TRUE(ranks_.WaitDone(r, 10)) << ranks_.Read(r, "outcome");
    return lab_.Show(job.name);
  }
  void ExpectDone(const std::vector<int>& ids) {
    std::string text = "done";
    for (const int id : ids) text += " " + std::to_string(id);
    for (const int id : ids) EXPECT_EQ(ranks_.Outcome(static_cast<size_t>(id)), text);
  }
  std::string Who(size_t rank) const {
    return "rank " + std::to_string(rank) + " (host " + hosts_[rank] + ", pid " + std::to_string(ranks_.pid(rank)) + ")";
  }

  DaemonLab lab_{{"w1", "w2", "w3", "w4", "a1"}};
  const std::vector<std::string> hosts_ = {"w1", "w2", "w3", "w4"};
  ShrinkRanks ranks_{lab_};
};

TEST_F(DaemonShrink, one_rank_is_killed_and_the_others_sum_on) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  const Json before = Begin({"one", hosts_, 3});
  ranks_.Kill(2);
  ExpectDone({0, 1, 3});
  for (const size_t rank : {0, 1, 3}) {
    EXPECT_THAT(ranks_.Read(rank, "error"), AllOf(HasSubstr("E_RANK_LOST"), HasSubstr(Who(2))));
    EXPECT_THAT(ranks_.Read(rank, "shrunk"), AllOf(StartsWith(" 2: "), HasSubstr(Who(2))));
  }
  const Json after = lab_.ShowOver("one");
  EXPECT_EQ(after["world_size"], 3);
  EXPECT_EQ(after["id"], before["id"]);
  EXPECT_GT(after["epoch"], before["epoch"]);
  EXPECT_EQ(after["mode"], "kernel");
  EXPECT_EQ(after["shrunk"]["former_ranks"], (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(after["shrunk"]["lost"], std::vector<int>{2});
  EXPECT_GT(after["totals"]["summed_in_kernel"], 0u);
  EXPECT_EQ(after["totals"]["summed_in_ring"], 0u);
}

TEST_F(DaemonShrink, two_ranks_are_killed_at_once_then_one_more_and_the_last_goes_on_alone) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  Begin({"two", hosts_, 1});
  ranks_.Kill(0);
  ranks_.Kill(2);
  for (const size_t rank : {1, 3}) {
    ASSERT_TRUE(ranks_.WaitFor(rank, "shrunk")) << ranks_.Read(rank, "outcome");
    EXPECT_THAT(ranks_.Read(rank, "shrunk"), AllOf(StartsWith(" 0 2: "), HasSubstr(Who(0)), HasSubstr(Who(2))));
  }
  ranks_.Kill(3);
  ExpectDone({1});
  EXPECT_EQ(lab_.Show("two")["world_size"], 1);
}

TEST_F(DaemonShrink, ranks_that_share_hosts_and_packets_that_carry_tags) {
  ASSERT_NO_FATAL_FAILURE(StartAll("[job]\nmac = true"));
  const Json before = Begin({"tags", {"w1", "w2", "w1", "w2", "w2"}, 3});
  ASSERT_EQ(before["spec"]["mac"], true);
  ranks_.Kill(0);
  ranks_.Kill(3);
  ExpectDone({1, 2, 4});
  EXPECT_GT(lab_.ShowOver("tags")["totals"]["summed_in_kernel"], 0u);
}

TEST_F(DaemonShrink, a_stopped_rank_is_lost_and_is_refused_when_it_comes_back) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  Begin({"stopped", hosts_, 3});
  ::kill(ranks_.pid(1), SIGSTOP);
  ExpectDone({0, 2, 3});
  EXPECT_THAT(ranks_.Read(0, "shrunk"), AllOf(StartsWith(" 1: "), HasSubstr("rank 1 (host w2")));
  ::kill(ranks_.pid(1), SIGCONT);
  EXPECT_THAT(ranks_.Outcome(1), AllOf(HasSubstr("E_CONFLICT"), HasSubstr("rank 1 is too late: job 'stopped' has gone on with 3 ranks")));
}

TEST_F(DaemonShrink, a_host_that_is_cut_off_is_left_behind) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  Begin({"cut", hosts_, 3});
  Cut("w4");
  ExpectDone({0, 1, 2});
  EXPECT_THAT(ranks_.Outcome(3), ::testing::AnyOf(HasSubstr("is too late"), HasSubstr("counts as lost")));
}

TEST_F(DaemonShrink, a_rank_that_never_asks_is_named_after_the_wait_and_refused_later) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  Begin({"never", hosts_, 2, 1'500, {3}});
  const auto begin = std::chrono::steady_clock::now();
  ranks_.Kill(1);
  for (const size_t rank : {0, 2}) {
    ASSERT_TRUE(ranks_.WaitFor(rank, "shrunk")) << ranks_.Read(rank, "outcome");
    EXPECT_THAT(ranks_.Read(rank, "shrunk"), AllOf(StartsWith(" 1 3: "), HasSubstr(Who(3) + " did not ask to go on within ")));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
  ranks_.TellToAsk(3);
  EXPECT_THAT(ranks_.Outcome(3), AllOf(HasSubstr("E_CONFLICT"), HasSubstr("rank 3 is too late")));
  ExpectDone({0, 2});
}

// Wherever it is just then: it has not asked yet, has asked, its hosts prepare, or it sums again.
TEST_F(DaemonShrink, one_more_dies_while_the_others_shrink) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  for (const int delay_ms : {0, 40, 90, 160, 250, 400}) {
    SCOPED_TRACE(delay_ms);
    Begin({"more" + std::to_string(delay_ms), hosts_, 2});
    ranks_.Kill(0);
    ASSERT_TRUE(ranks_.WaitFor(3, "asking"));
    const auto at = std::chrono::steady_clock::now() + std::chrono::milliseconds(delay_ms);
    WaitUntil([&] { return std::chrono::steady_clock::now() >= at; });
    ranks_.Kill(3);
    ExpectDone({1, 2});
  }
}

TEST_F(DaemonShrink, a_rank_that_dies_before_it_asks_is_not_waited_for) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  Begin({"unasked", hosts_, 2, 25'000, {2}});
  ranks_.Kill(1);
  for (const size_t rank : {0, 2, 3}) ASSERT_TRUE(ranks_.WaitFor(rank, rank == 2 ? "error" : "asking"));
  const auto begin = std::chrono::steady_clock::now();
  ranks_.Kill(2);
  ExpectDone({0, 3});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

TEST_F(DaemonShrink, a_job_in_the_ring_goes_back_to_the_kernel) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  Begin({"ring", hosts_, 3});
  Cut("a1");
  ASSERT_TRUE(WaitUntil([&] { return lab_.Show("ring")["totals"]["summed_in_ring"] > 0; }, std::chrono::seconds(30)));
  Mend("a1");
  ranks_.Kill(3);
  ExpectDone({0, 1, 2});
  const Json after = lab_.ShowOver("ring");
  EXPECT_EQ(after["mode"], "kernel");
  EXPECT_EQ(after["totals"]["summed_in_ring"], 0);
}

TEST_F(DaemonShrink, a_job_in_the_ring_stays_in_it_while_no_aggregator_answers) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  Begin({"still", hosts_, 3});
  Cut("a1");
  ASSERT_TRUE(WaitUntil([&] { return lab_.Show("still")["totals"]["summed_in_ring"] > 0; }, std::chrono::seconds(30)));
  ranks_.Kill(3);
  ExpectDone({0, 1, 2});
  const Json after = lab_.ShowOver("still");
  EXPECT_EQ(after["mode"], "ring");
  EXPECT_GT(after["totals"]["summed_in_ring"], 0);
  EXPECT_EQ(after["totals"]["summed_in_kernel"], 0);
}

// Whichever is noticed first.
TEST_F(DaemonShrink, a_rank_and_the_only_aggregator_are_lost_together) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  for (const bool rank_first : {true, false}) {
    SCOPED_TRACE(rank_first);
    const std::string job = rank_first ? "rank-first" : "aggregator-first";
    Begin({job, hosts_, 3});
    if (rank_first) ranks_.Kill(1);
    Cut("a1");
    if (!rank_first) ranks_.Kill(1);
    ExpectDone({0, 2, 3});
    const Json after = lab_.ShowOver(job);
    EXPECT_EQ(after["mode"], "ring");
    EXPECT_GT(after["totals"]["summed_in_ring"], 0);
    Mend("a1");
  }
}

}  // namespace
}  // namespace mlnet::test
