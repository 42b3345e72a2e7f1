// SPDX-License-Identifier: Apache-2.0
// Aggregators that die in the middle of collectives, with real daemons and ranks: the job goes on in user space, and every
// rank returns the bits of an undisturbed job; or it ends by name, where the kernel is required or a rank is lost.
#include <csignal>

#include "lab/outage_ranks.h"

namespace mlnet::test {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

class DaemonOutage : public ::testing::Test {
 protected:
  void Cut(const std::string& host) { Shell("ip -n " + lab_.Netns("sw") + " link set p-" + host + " down"); }
  // Without taking its kernel's part away it would go on summing.
  void KillAndClean(const std::string& host) {
    lab_.Signal(host, SIGKILL);
    const Ran ran = Shell("nsenter --net=/run/netns/" + lab_.Netns(host) + " " MLNETD_BINARY " --clean --config " + lab_.ConfigFile(host));
    EXPECT_EQ(ran.exit_code, 0) << ran.output;
  }
  void Mend(const std::string& host) { Shell("ip -n " + lab_.Netns("sw") + " link set p-" + host + " up"); }

  /// What the ranks of `job` write down when nothing happens.
  std::vector<std::string> Undisturbed(OutageJob job) {
    job.name += "-calm";
    OutageRanks ranks(lab_);
    ranks.Start(job);
    auto outcomes = ranks.Outcomes();
    EXPECT_THAT(outcomes, Each(outcomes.at(0))) << "all ranks have the same";
    const Json shown = lab_.ShowOver(job.name);
    EXPECT_EQ(shown["mode"], "kernel");
    Print(job, ranks, shown["totals"]);
    return outcomes;
  }
  bool IsInRing(const std::string& job) {
    return WaitUntil([&] { return lab_.Call("w1", "job.show", {{"name", job}})["mode"] == "ring"; }, std::chrono::seconds(30));
  }
  /// The job begins, `lose` happens after some calls, and the ranks return what they would have.
  void ExpectGoesOn(OutageJob job, const std::vector<std::string>& expected, int calls_before, const std::function<void()>& lose) {
    OutageRanks ranks(lab_);
    job.held = job.calls / 8;  // else they might be through before a busy machine has got to it
    ranks.Start(job);
    ASSERT_TRUE(ranks.WaitDone(0, calls_before)) << ranks.Outcome(0);
    lose();
    ranks.Release();
    const auto outcomes = ranks.Outcomes();
    for (size_t r = 0; r < outcomes.size(); ++r) EXPECT_EQ(outcomes[r], expected[r]) << job.name << ", rank " << r;
    const Json shown = lab_.ShowOver(job.name);
    EXPECT_EQ(shown["mode"], "ring");
    EXPECT_THAT(shown["mode_why"].get<std::string>(), HasSubstr("a1"));
    EXPECT_GT(shown["totals"]["summed_in_ring"], 0u);
    EXPECT_GT(shown["totals"]["summed_in_kernel"], 0u);
    Print(job, ranks, shown["totals"]);
  }
  static void Print(const OutageJob& job, OutageRanks& ranks, const Json& totals) {
    const auto times = ranks.TimesOf(0);
    std::printf("%s: the slowest call took %d ms, those of %zu elements then %d us; summed in the kernel %s, in the ring %s\n", job.name.c_str(),
                times.slowest_ms, job.count_most, times.median_us, totals["summed_in_kernel"].dump().c_str(), totals["summed_in_ring"].dump().c_str());
  }

  DaemonLab lab_{{"w1", "w2", "w3", "w4", "a1", "a2"}};
  const std::vector<std::string> hosts_ = {"w1", "w2", "w3", "w4"};
};

TEST_F(DaemonOutage, one_of_two_aggregators_dies_in_whatever_way_and_all_ranks_return_the_same_bits) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  const OutageJob large{"large", hosts_, 48, 200'000}, small{"small", hosts_, 1'200, 1'500};
  const auto of_large = Undisturbed(large), of_small = Undisturbed(small);
  for (int round = 0; round < 2; ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(ExpectGoesOn(large, of_large, 7 + round * 6, [&] { Cut("a1"); }));
    Mend("a1");
    ASSERT_NO_FATAL_FAILURE(ExpectGoesOn(small, of_small, 100 + 333 * round, [&] { Cut("a1"); }));
    Mend("a1");
    ASSERT_NO_FATAL_FAILURE(ExpectGoesOn(large, of_large, 8 + round * 9, [&] { KillAndClean("a1"); }));
    ASSERT_NO_FATAL_FAILURE(lab_.Start("a1"));
    ASSERT_NO_FATAL_FAILURE(ExpectGoesOn(small, of_small, 200 + 111 * round, [&] { KillAndClean("a1"); }));
    ASSERT_NO_FATAL_FAILURE(lab_.Start("a1"));
  }
}

TEST_F(DaemonOutage, the_only_aggregator_is_cut_off_and_several_ranks_share_hosts) {
  for (const char* host : {"w1", "w2", "a1"}) ASSERT_NO_FATAL_FAILURE(lab_.Start(host));
  const OutageJob job{"shared", {"w1", "w2", "w1", "w2", "w2"}, 60, 60'000};
  const auto expected = Undisturbed(job);
  ASSERT_NO_FATAL_FAILURE(ExpectGoesOn(job, expected, 9, [&] { Cut("a1"); }));
}

// The node above them answers: a sum that it has passed on is held. That is no sign of life of the root.
TEST_F(DaemonOutage, ranks_that_ask_all_the_time_do_not_hide_that_the_root_is_silent) {
  for (const std::string host : {"w1", "w2", "w3", "w4"}) {
    ASSERT_NO_FATAL_FAILURE(lab_.Start(host, std::string("[site]\nrack = \"") + (host < "w3" ? "r1" : "r2") + "\"\n"));
  }
  ASSERT_NO_FATAL_FAILURE(lab_.Start("a1"));
  for (const std::string shape : {"star", "rack"}) {
    OutageJob job{shape, std::vector<std::string>(8, "w1"), 60, 20'000};
    for (const char* host : {"w2", "w3", "w4"}) job.hosts.emplace_back(host);
    for (const std::string& name : {shape + "-calm", shape}) {
      lab_.Call("w1", "job.create", {{"name", name}, {"world_size", job.hosts.size()}, {"shape", shape}, {"rto_min_us", 1'000}, {"rto_max_us", 2'000}});
    }
    const auto expected = Undisturbed(job);
    ASSERT_NO_FATAL_FAILURE(ExpectGoesOn(job, expected, 9, [&] { Cut("a1"); }));
    Mend("a1");
  }
}

TEST_F(DaemonOutage, a_job_with_a_key_goes_on_too) {
  for (const char* host : {"w1", "w2", "w3", "a1"}) ASSERT_NO_FATAL_FAILURE(lab_.Start(host, "[job]\nmac = true"));
  const OutageJob job{"tags", {"w1", "w2", "w3"}, 60, 60'000};
  const auto expected = Undisturbed(job);
  ASSERT_NO_FATAL_FAILURE(ExpectGoesOn(job, expected, 9, [&] { Cut("a1"); }));
  EXPECT_EQ(lab_.Call("w1", "job.show", {{"name", "tags"}})["spec"]["mac"], true);
}

TEST_F(DaemonOutage, a_job_that_requires_the_kernel_ends_by_name) {
  for (const char* host : {"w1", "w2", "a1"}) ASSERT_NO_FATAL_FAILURE(lab_.Start(host));
  lab_.Call("w1", "job.create", {{"name", "strict"}, {"world_size", 2}, {"require_mode", "kernel"}});
  OutageRanks ranks(lab_);
  ranks.Start({"strict", {"w1", "w2"}, 1'000'000, 2'000});
  ASSERT_TRUE(ranks.WaitDone(0, 20));
  const auto begin = std::chrono::steady_clock::now();
  Cut("a1");
  EXPECT_THAT(ranks.Outcomes(), Each(AnyOf(HasSubstr("host a1, which sums at"), HasSubstr("host a1 has not heard of"))));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << "not by the timeout of a call";
  EXPECT_EQ(lab_.Call("w1", "job.show", {{"name", "strict"}})["totals"]["summed_in_ring"], 0);
}

TEST_F(DaemonOutage, status_says_so_and_a_rank_that_dies_in_the_ring_is_named) {
  for (const char* host : {"w1", "w2", "w3", "a1"}) ASSERT_NO_FATAL_FAILURE(lab_.Start(host));
  const auto in_ring = [&](OutageRanks& ranks, const std::string& job) {
    ranks.Start({job, {"w1", "w2", "w3"}, 1'000'000, 3'000});
    ASSERT_TRUE(ranks.WaitDone(0, 20));
    Cut("a1");
    ASSERT_TRUE(IsInRing(job));
    ASSERT_TRUE(ranks.WaitDone(0, ranks.Done(0) + 50)) << ranks.Outcome(0);
    const Json status = lab_.Call("w2", "status");
    EXPECT_EQ(status["state"], "degraded");
    EXPECT_THAT(status["problems"].dump(), HasSubstr("job '" + job + "' has been summing in user space"));
    Mend("a1");
  };
  OutageRanks ranks(lab_);
  ASSERT_NO_FATAL_FAILURE(in_ring(ranks, "killed"));
  ::kill(ranks.pid(1), SIGKILL);
  for (const size_t rank : {0, 2}) EXPECT_THAT(ranks.Outcome(rank), HasSubstr("rank 1 (host w2"));

  ASSERT_NO_FATAL_FAILURE(in_ring(ranks, "stopped"));
  ::kill(ranks.pid(2), SIGSTOP);
  for (const size_t rank : {0, 1}) EXPECT_THAT(ranks.Outcome(rank), HasSubstr("rank 2 (host w3) has not been heard of in the ring"));

  ASSERT_NO_FATAL_FAILURE(in_ring(ranks, "cut"));
  Cut("w3");
  EXPECT_THAT(ranks.Outcome(0), HasSubstr("has not been heard of in the ring")) << "of w3, or w3 of its neighbour: each is right";
  EXPECT_THAT(ranks.Outcome(1), HasSubstr("has not been heard of in the ring"));
}

}  // namespace
}  // namespace mlnet::test
