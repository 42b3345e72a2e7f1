// SPDX-License-Identifier: Apache-2.0
// Daemons that share a real etcd of three members, each in a network namespace of its own: what the loss of one of
// them, and of the quorum, does to jobs that run and to jobs that begin.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <list>
#include <optional>

#include "control/plan.h"
#include "daemon/etcd_json.h"
#include "lab/daemon_fixture.h"
#include "unit/daemon/lossy_proxy.h"

namespace mlnet::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

// A test that crashed takes its processes along, but not its namespaces.
void SweepNamespaces() {
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator("/run/netns", ec)) {
    int pid = 0;
    const std::string name = entry.path().filename();
    if (std::sscanf(name.c_str(), "mldt%d-", &pid) == 1 && ::kill(pid, 0) != 0 && errno == ESRCH) Shell("ip netns del " + name);
  }
}

class DaemonEtcd : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string url;
    for (const std::string& member : members_) {
      url += (url.empty() ? "etcd:" : ",") + Url(member);
      ASSERT_EQ(Shell("ip -n " + lab_.Netns(member) + " link set lo up").exit_code, 0);
      StartMember(member);
    }
    for (const std::string& member : members_) ASSERT_TRUE(WaitUntil([&] { return IsHealthy(member); }, seconds(30))) << Log(member);
    lab_.UseStore("url = \"" + url + "\"");
  }
  void StartDaemons() {
    for (const char* host : {"w1", "w2", "a1"}) ASSERT_NO_FATAL_FAILURE(lab_.Start(host));
  }

  void TearDown() override {
    for (const auto& [member, pid] : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      if (HasFailure()) std::fprintf(stderr, "--- %s\n%s", member.c_str(), Shell("tail -n 30 " + lab_.Path(member + ".log")).output.c_str());
    }
  }

  std::string Url(const std::string& member) const { return "http://" + lab_.Address(member) + ":2379"; }
  std::string Log(const std::string& member) const { return Shell("cat " + lab_.Path(member + ".log")).output; }

  void StartMember(const std::string& member) {
    std::string cluster;
    for (const std::string& m : members_) cluster += fmt::format("{}{}=http://{}:2380", cluster.empty() ? "" : ",", m, lab_.Address(m));
    const std::string command = fmt::format(
        "exec nsenter --net=/run/netns/{} etcd --name {} --data-dir {} --listen-client-urls {} --advertise-client-urls {} "
        "--listen-peer-urls http://{}:2380 --initial-advertise-peer-urls http://{}:2380 --initial-cluster {} >>{} 2>&1",
        lab_.Netns(member), member, lab_.Path(member + ".data"), Url(member), Url(member), lab_.Address(member), lab_.Address(member),
        cluster, lab_.Path(member + ".log"));
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    pids_[member] = pid;
  }

  void KillMember(const std::string& member) {
    ::kill(pids_.at(member), SIGKILL);
    ::waitpid(pids_.at(member), nullptr, 0);
    pids_.erase(member);
  }

  Ran Curl(const std::string& member, const std::string& path) const {
    return Shell("nsenter --net=/run/netns/" + lab_.Netns(member) + " curl -s -m 2 " + Url(member) + path);
  }
  bool IsHealthy(const std::string& member) const { return Curl(member, "/health").output.find("\"true\"") != std::string::npos; }

  // The member that leads: its loss also costs an election. None does while one is going on.
  std::string Leader() const {
    for (const auto& [member, pid] : pids_) {
      const Json status = Json::parse(Curl(member, "/v3/maintenance/status -d {}").output, nullptr, false);
      if (status.is_object() && status.contains("leader") && status["leader"] == status["header"]["member_id"]) return member;
    }
    return "";
  }

  std::vector<Joined> JoinTwo(const std::string& job, int timeout_ms = 15'000) {
    return lab_.Join(job, {{"w1", 0, 2, timeout_ms}, {"w2", 1, 2, timeout_ms}});
  }

  void ExpectSum(std::vector<Joined>& ranks) { lab_.ExpectSum(ranks, next_seq_++); }

  // Members on a busy machine may hold an election, and give no answer meanwhile, whenever they like.
  bool IsSoonOk(const std::string& host) {
    return WaitUntil([&] { return lab_.Call(host, "status")["state"] == "ok"; });
  }
  bool SaysOutage(const std::string& host) {
    return lab_.Call(host, "status")["problems"].dump().find("no answer from the store at http://") != std::string::npos;
  }
  std::string StateOn(const std::string& host, const std::string& job) {
    const Json list = lab_.Call(host, "job.list");
    for (const Json& row : list["jobs"]) {
      if (row["name"] == job) return row["state"];
    }
    return "";
  }
  size_t NumLines(const std::string& host, const std::string& words) const {
    size_t count = 0;
    const std::string log = lab_.Log(host);
    for (size_t at = log.find(words); at != std::string::npos; at = log.find(words, at + 1)) ++count;
    return count;
  }

  // Sums of `job` for as long as it takes until `condition` holds.
  void SumUntil(std::vector<Joined>& job, const std::function<bool()>& condition) {
    ASSERT_TRUE(WaitUntil([&] {
      if (next_seq_ < kSeqMax) ExpectSum(job);
      return HasFatalFailure() || condition();
    }, seconds(60)));
  }

  static constexpr uint64_t kSeqMax = 200;  // of one round of the pool

  const bool is_swept_ = (SweepNamespaces(), true);
  const std::vector<std::string> members_ = {"e1", "e2", "e3"};
  DaemonLab lab_{{"w1", "w2", "a1", "e1", "e2", "e3", "w3"}};
  std::map<std::string, pid_t> pids_;
  uint64_t next_seq_ = 0;
};

TEST_F(DaemonEtcd, job_is_made_and_ended_by_daemons_that_share_nothing_but_etcd) {
  ASSERT_NO_FATAL_FAILURE(StartDaemons());
  auto ranks = JoinTwo("demo");
  for (const Joined& rank : ranks) ASSERT_TRUE(rank.ok) << rank.error.ToString();
  ASSERT_NO_FATAL_FAILURE(ExpectSum(ranks));
  lab_.Leave(ranks);
  EXPECT_TRUE(WaitUntil([&] { return StateOn("a1", "demo") == "closed"; }));
  EXPECT_TRUE(IsSoonOk("w1")) << lab_.Call("w1", "status")["problems"];
}

TEST_F(DaemonEtcd, loss_of_a_member_stops_neither_the_running_job_nor_a_new_one) {
  ASSERT_NO_FATAL_FAILURE(StartDaemons());
  auto running = JoinTwo("running");
  ASSERT_TRUE(running[0].ok && running[1].ok) << running[0].error.ToString();
  ASSERT_NO_FATAL_FAILURE(ExpectSum(running));
  std::string leader;
  ASSERT_TRUE(WaitUntil([&] { return !(leader = Leader()).empty(); }));
  KillMember(leader);
  ASSERT_NO_FATAL_FAILURE(ExpectSum(running));
  auto fresh = JoinTwo("fresh");
  for (const Joined& rank : fresh) EXPECT_TRUE(rank.ok) << rank.error.ToString();
  ASSERT_NO_FATAL_FAILURE(ExpectSum(running));
  EXPECT_EQ(StateOn("a1", "running"), "ready");
}

TEST_F(DaemonEtcd, without_a_quorum_running_jobs_go_on_and_new_ones_wait_until_it_is_back) {
  ASSERT_NO_FATAL_FAILURE(StartDaemons());
  auto running = JoinTwo("running"), leaving = JoinTwo("leaving");
  ASSERT_TRUE(running[0].ok && leaving[0].ok) << running[0].error.ToString() << leaving[0].error.ToString();
  KillMember("e1");
  KillMember("e2");
  for (const char* host : {"w1", "w2", "a1"}) ASSERT_TRUE(WaitUntil([&] { return SaysOutage(host); })) << host;
  const auto began = steady_clock::now();
  ASSERT_NO_FATAL_FAILURE(ExpectSum(running));

  const Joined late = std::move(lab_.Join("impatient", {{"w1", 0, 2, 1000}})[0]);
  EXPECT_EQ(late.error.code, ErrorCode::kTimeout);
  EXPECT_THAT(late.error.message, HasSubstr("waiting for the store at http://" + lab_.Address("e1") + ":2379, http://"));
  EXPECT_THAT(late.error.message, HasSubstr("rank 0 of job 'impatient' gave up after "));
  auto waiting = std::async(std::launch::async, [&] { return JoinTwo("waiting", 60'000); });
  for (const char* host : {"w1", "w2"}) {
    EXPECT_TRUE(WaitUntil([&] { return NumLines(host, "job waiting: rank") == 1 && NumLines(host, "is waiting for the store at http://") >= 1; }));
  }
  EXPECT_THAT(lab_.Call("w2", "status")["problems"].dump(), HasSubstr("rank 1 of job 'waiting' has been waiting for the store for "));
  lab_.Leave(leaving);  // told to everybody when the store is back
  // Longer than what makes a host that does not send heartbeats a dead one.
  const auto enough = milliseconds(control::kHeartbeatStaleMs + 1500);
  ASSERT_NO_FATAL_FAILURE(SumUntil(running, [&] { return steady_clock::now() - began > enough; }));
  for (const char* host : {"w1", "w2", "a1"}) EXPECT_LE(NumLines(host, "no answer from the store at"), 3u) << lab_.Log(host);

  StartMember("e1");
  const auto joined = waiting.get();
  for (const Joined& rank : joined) EXPECT_TRUE(rank.ok) << rank.error.ToString();
  ASSERT_NO_FATAL_FAILURE(ExpectSum(running));
  EXPECT_TRUE(WaitUntil([&] { return StateOn("a1", "leaving") == "closed"; })) << StateOn("a1", "leaving");
  for (const char* host : {"w1", "w2", "a1"}) {
    EXPECT_EQ(StateOn(host, "running"), "ready") << host;
    EXPECT_TRUE(IsSoonOk(host)) << host << lab_.Call(host, "status")["problems"];
  }
}

TEST_F(DaemonEtcd, daemon_that_starts_when_an_outage_ends_calls_nobody_dead_for_it) {
  ASSERT_NO_FATAL_FAILURE(StartDaemons());
  auto running = JoinTwo("running");
  ASSERT_TRUE(running[0].ok && running[1].ok) << running[0].error.ToString();
  KillMember("e1");
  KillMember("e2");
  ASSERT_TRUE(WaitUntil([&] { return SaysOutage("a1"); }));
  const auto began = steady_clock::now();
  ASSERT_NO_FATAL_FAILURE(SumUntil(running, [&] { return steady_clock::now() - began > milliseconds(control::kHeartbeatStaleMs + 500); }));
  // It comes first to the store that is back; the others need some hundreds of milliseconds, this one a little longer.
  ::kill(lab_.Pid("a1"), SIGSTOP);
  StartMember("e1");
  ASSERT_TRUE(WaitUntil([&] { return IsHealthy("e1"); }, seconds(30)));
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w3"));
  EXPECT_TRUE(WaitUntil([&] { return NumLines("w3", "mlnetd on host a1 was last heard of") == 1; })) << lab_.Log("w3");
  ::kill(lab_.Pid("a1"), SIGCONT);
  auto fresh = lab_.Join("fresh", {{"w3", 0, 2, 15'000}, {"w2", 1, 2, 15'000}});
  for (const Joined& rank : fresh) EXPECT_TRUE(rank.ok) << rank.error.ToString();
  EXPECT_EQ(StateOn("w3", "running"), "ready") << lab_.Log("w3");
  ASSERT_NO_FATAL_FAILURE(ExpectSum(running));
}

// A daemon behind a proxy that loses the answer to the write of a join: the rank is in, and its daemon does not know.
class DaemonLostAnswer : public DaemonEtcd {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(DaemonEtcd::SetUp());
    lab_.In("w1", [&] { proxy_.emplace(lab_.Address("e1"), uint16_t{2379}); });
    lab_.UseStore("url = \"etcd:http://127.0.0.1:" + std::to_string(proxy_->port()) + "\"");
    ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  }
  const std::string write_of_demo_ = "\"request_put\":{\"key\":\"" + daemon::etcd::ToBase64("mlnet/jobs/open/demo");
  std::optional<LossyProxy> proxy_;
};

TEST_F(DaemonLostAnswer, its_repetition_takes_the_join_up) {
  auto join = std::async(std::launch::async, [&] {
    proxy_->Lose(write_of_demo_);
    return std::move(lab_.Join("demo", {{"w1", 0, 2, 8000}})[0]);
  });
  EXPECT_TRUE(WaitUntil([&] { return proxy_->num_lost() == 1 && NumLines("w1", "job demo: rank 0 of 2 joined") == 1; }));
  EXPECT_THAT(join.get().error.message, HasSubstr("waiting for rank 1 of job 'demo'")) << "not: rank 0 is taken";
}

TEST_F(DaemonLostAnswer, member_that_nobody_waits_for_any_more_is_dropped) {
  proxy_->Lose(write_of_demo_, /*and_cut=*/true);
  const Joined late = std::move(lab_.Join("demo", {{"w1", 0, 2, 1500}})[0]);
  EXPECT_THAT(late.error.message, HasSubstr("waiting for the store at http://127.0.0.1:"));
  const std::string range = "/v3/kv/range -d '{\"key\":\"" + daemon::etcd::ToBase64("mlnet/jobs/open/demo") + "\"}'";
  EXPECT_TRUE(WaitUntil([&] { return Curl("e1", range).output.find("\"count\":\"1\"") != std::string::npos; })) << "it is in the store";
  EXPECT_TRUE(WaitUntil([&] { return proxy_->num_lost() == 1; })) << "a slow member's answer may come after the rank has given up";
  proxy_->Heal();
  EXPECT_TRUE(WaitUntil([&] { return NumLines("w1", "has no connection any more") >= 1 && StateOn("w1", "demo").empty(); }));
}

// All daemons behind proxies that hold every answer back, as an etcd on a busy machine does.
class DaemonSlowStore : public DaemonEtcd {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(DaemonEtcd::SetUp());
    for (const char* host : {"w1", "w2", "a1"}) {
      lab_.In(host, [&] { proxies_.emplace_back(lab_.Address("e1"), uint16_t{2379}); });
      lab_.UseStore("url = \"etcd:http://127.0.0.1:" + std::to_string(proxies_.back().port()) + "\"");
      ASSERT_NO_FATAL_FAILURE(lab_.Start(host));
    }
  }
  std::list<LossyProxy> proxies_;
};

// Each decision then takes a second, and a pass makes some for each job.
TEST_F(DaemonSlowStore, hosts_that_are_busy_deciding_do_not_count_as_dead) {
  for (LossyProxy& proxy : proxies_) proxy.Delay(400);
  std::vector<std::future<std::vector<Joined>>> jobs;
  for (const char* name : {"j1", "j2", "j3", "j4"}) jobs.push_back(std::async(std::launch::async, [this, name] { return JoinTwo(name, 90'000); }));
  for (auto& job : jobs) {
    for (const Joined& rank : job.get()) EXPECT_TRUE(rank.ok) << rank.error.ToString();
  }
  for (const char* host : {"w1", "w2", "a1"}) EXPECT_EQ(NumLines(host, "does not answer any more"), 0u) << lab_.Log(host);
}

}  // namespace
}  // namespace mlnet::test
