// SPDX-License-Identifier: Apache-2.0
// Jobs that begin where nobody sums: none is configured, all are dead, or those of the plan do not become ready. They begin in the
// ring, with the bits of a job in the kernel; where the kernel is required they fail at once.
#include <sqlite3.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>

#include "base/clock.h"
#include "lab/outage_ranks.h"
#include "unit/daemon/sql.h"

namespace mlnet::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class DaemonRingStart : public ::testing::Test {
 protected:
  void StartAll(const std::string& more = "") {
    for (const char* host : {"w1", "w2", "w3", "a1"}) ASSERT_NO_FATAL_FAILURE(lab_.Start(host, more));
  }
  void KillAndClean(const std::string& host) {
    lab_.Signal(host, SIGKILL);
    const Ran ran = Shell("nsenter --net=/run/netns/" + lab_.Netns(host) + " " MLNETD_BINARY " --clean --config " + lab_.ConfigFile(host));
    EXPECT_EQ(ran.exit_code, 0) << ran.output;
  }
  // Others that write at the moment are through before long.
  bool CanWrite() const {
    sqlite3* db = nullptr;
    EXPECT_EQ(sqlite3_open(lab_.Path("store.db").c_str(), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 1000);
    const bool can_write = sqlite3_exec(db, "BEGIN IMMEDIATE; ROLLBACK", nullptr, nullptr, nullptr) == SQLITE_OK;
    sqlite3_close(db);
    return can_write;
  }
  /// Stops a daemon, but not in the middle of a write to the store: nobody could write then.
  void Freeze(const std::string& host) {
    ASSERT_TRUE(WaitUntil([&] {
      ::kill(lab_.Pid(host), SIGSTOP);
      ::waitpid(lab_.Pid(host), nullptr, WUNTRACED);
      if (CanWrite()) return true;
      ::kill(lab_.Pid(host), SIGCONT);
      return false;
    }));
  }
  /// It goes on, and has a young heartbeat again.
  void Thaw(const std::string& host) {
    const uint64_t at_ms = WallMs();
    ::kill(lab_.Pid(host), SIGCONT);
    const std::string heartbeat = "SELECT heartbeat_ms FROM hosts WHERE host = '" + host + "'";
    ASSERT_TRUE(WaitUntil([&] { return std::stoull(Sql(lab_.Path("store.db"), heartbeat)) > at_ms; }));
  }
  void CreateStar(const OutageJob& job, const std::string& require_mode = "any") {
    lab_.Call("w1", "job.create", {{"name", job.name}, {"world_size", job.hosts.size()}, {"shape", "star"}, {"require_mode", require_mode}});
  }
  /// What the ranks of `job` write down when the kernel sums.
  std::vector<std::string> InKernel(OutageJob job) {
    job.name += "-kernel";
    OutageRanks ranks(lab_);
    ranks.Start(job);
    auto outcomes = ranks.Outcomes();
    const Json shown = lab_.ShowOver(job.name);
    EXPECT_EQ(shown["mode"], "kernel");
    EXPECT_GT(shown["totals"]["summed_in_kernel"], 0u);
    return outcomes;
  }
  void ExpectInRing(const OutageJob& job, OutageRanks& ranks, const std::vector<std::string>& expected, const std::string& why) {
    EXPECT_EQ(ranks.Outcomes(), expected);
    const Json shown = lab_.ShowOver(job.name);
    EXPECT_EQ(shown["mode"], "ring");
    EXPECT_EQ(shown["aggregator"], nullptr);
    EXPECT_THAT(shown["mode_why"].get<std::string>(), HasSubstr(why));
    EXPECT_EQ(shown["totals"]["summed_in_kernel"], 0);
    EXPECT_GT(shown["totals"]["summed_in_ring"], 0u);
    EXPECT_EQ(shown["totals"]["summed_in_ring"], shown["totals"]["summed_in_user_space"]);
  }

  DaemonLab lab_{{"w1", "w2", "w3", "a1"}};
  const std::vector<std::string> hosts_ = {"w1", "w2", "w3"};
};

TEST_F(DaemonRingStart, all_aggregators_are_dead_and_the_job_begins_in_the_ring_or_fails_at_once) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  OutageJob job{"dead", hosts_, 24, 60'000};
  const auto expected = InKernel(job);
  KillAndClean("a1");
  CreateStar(job);
  OutageRanks ranks(lab_);
  job.held = 1;  // status says nothing of a job that is over
  ranks.Start(job);
  ASSERT_TRUE(ranks.WaitDone(0, 1)) << ranks.Outcome(0);
  const Json status = lab_.Call("w2", "status");
  EXPECT_EQ(status["state"], "degraded");
  EXPECT_THAT(status["problems"].dump(), HasSubstr("job 'dead' has been summing in user space"));
  ranks.Release();
  ExpectInRing(job, ranks, expected, "no aggregator for job 'dead'");
  lab_.Call("w1", "job.levels", {{"name", "dead"}});
  lab_.Call("w1", "top", {{"all", true}});

  const OutageJob strict{"strict", hosts_, 24, 60'000};
  CreateStar(strict, "kernel");
  const auto begin = std::chrono::steady_clock::now();
  ranks.Start(strict);
  EXPECT_THAT(ranks.Outcomes(), Each(AllOf(HasSubstr("E_UNAVAILABLE"), HasSubstr("no aggregator for job 'strict'"))));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
}

TEST_F(DaemonRingStart, none_is_configured_and_hosts_have_several_ranks_and_tags) {
  const std::string tags = "[job]\nmac = true\n";
  for (const char* host : {"w1", "w2"}) ASSERT_NO_FATAL_FAILURE(lab_.Start(host, tags));
  const OutageJob job{"none", {"w1", "w2", "w1", "w2", "w2"}, 24, 60'000};
  CreateStar(job);  // the hosts of ranks would sum it else
  OutageRanks ranks(lab_);
  ranks.Start(job);
  ranks.Outcomes();
  ASSERT_NO_FATAL_FAILURE(lab_.Start("a1", tags));
  const auto expected = InKernel(job);
  ExpectInRing(job, ranks, expected, "no aggregator for job 'none'");
  EXPECT_EQ(lab_.Show("none")["spec"]["mac"], true);
}

// Its heartbeat is young enough to be planned with.
TEST_F(DaemonRingStart, an_aggregator_that_does_not_become_ready_is_not_waited_for_long) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  const OutageJob job{"late", hosts_, 24, 60'000};
  const auto expected = InKernel(job);
  ASSERT_NO_FATAL_FAILURE(Freeze("a1"));
  OutageRanks ranks(lab_);
  const auto begin = std::chrono::steady_clock::now();
  ranks.Start(job);
  ExpectInRing(job, ranks, expected, "not ready to sum within ");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));

  ASSERT_NO_FATAL_FAILURE(Thaw("a1"));
  ASSERT_NO_FATAL_FAILURE(Freeze("a1"));
  const OutageJob gone{"gone", hosts_, 24, 60'000};
  ranks.Start(gone);
  ASSERT_TRUE(WaitUntil([&] { return lab_.Call("w1", "job.list").dump().find("\"gone\"") != std::string::npos && lab_.Show("gone")["state"] == "preparing"; }));
  KillAndClean("a1");
  ExpectInRing(gone, ranks, expected, "a1");
}

}  // namespace
}  // namespace mlnet::test
