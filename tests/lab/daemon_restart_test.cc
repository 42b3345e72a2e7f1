// SPDX-License-Identifier: Apache-2.0
// Daemons that are killed, stopped and restarted under traffic: no sum fails, none is wrong, and what did not survive is named
// and removed.
#include <bpf/bpf.h>

#include <filesystem>

#include "lab/restart_fixture.h"

namespace mlnet::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class DaemonRestart : public RestartLab {
 protected:
  Json JobOn(const std::string& host) { return lab_.Call(host, "job.show", {{"name", "demo"}}); }
  uint64_t Incarnation() { return lab_.Call("a1", "top")["jobs"][0]["incarnation"]; }
  uint64_t Contributions(const std::string& host) { return lab_.Call(host, "stats")["contributions"]; }
  int ProgId(const std::string& host) { return lab_.Call(host, "iface.list")["ifaces"][0]["prog_id"]; }
  Fd Pinned(const std::string& host, const std::string& map) const {
    return Fd(bpf_obj_get((lab_.PinPath(host) + "/v" + std::to_string(MLNET_ABI_VERSION) + "/maps/" + map).c_str()));
  }
};

TEST_F(DaemonRestart, sums_go_on_while_any_daemon_is_killed_stopped_and_restarted) {
  lab_.UseDaemon("reconnect_ms = 1500");
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2", "w2"}));
  std::map<std::string, int> inner, ids;
  for (const char* host : {"w1", "w2", "a1"}) inner[host] = lab_.NumInnerMaps(host);
  const Json before = JobOn("a1");
  for (const auto& [host, signal] : {std::pair{"w2", SIGKILL}, {"a1", SIGKILL}, {"w1", SIGTERM}, {"a1", SIGTERM}, {"w2", SIGKILL}}) {
    const uint64_t contributions = Contributions(host);
    ids[host] = ProgId(host);
    ASSERT_NO_FATAL_FAILURE(Restart(host, signal));
    EXPECT_GT(Contributions(host) + (std::string(host) == "w1"), contributions) << "counters go on; w1 sums nothing";
    EXPECT_NE(ProgId(host), ids[host]) << "the program is the new daemon's";
    const Json after = JobOn(host);
    EXPECT_EQ(after["state"], "ready");
    for (const char* field : {"id", "epoch", "joined"}) EXPECT_EQ(after[field], before[field]) << field;
    EXPECT_EQ(lab_.Call(host, "status")["state"], "ok") << lab_.Call(host, "status")["problems"];
    EXPECT_EQ(lab_.NumInnerMaps(host), inner[host]);
    // Those that were waited for are not lost afterwards.
    ASSERT_TRUE(WaitUntil([&, until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2000)] {
      return std::chrono::steady_clock::now() > until;
    }));
    ASSERT_NO_FATAL_FAILURE(ExpectProgress(20));
  }
  ASSERT_NO_FATAL_FAILURE(StopRanks());
  EXPECT_TRUE(WaitUntil([&] { return JobOn("a1")["state"] == "closed"; })) << JobOn("a1");
  for (const char* host : {"w1", "w2", "a1"}) EXPECT_TRUE(WaitUntil([&] { return lab_.NumInnerMaps(host) == 0; })) << host;
}

TEST_F(DaemonRestart, new_jobs_come_and_go_beside_one_that_was_taken_over) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2"}));
  for (const char* host : {"a1", "w1"}) ASSERT_NO_FATAL_FAILURE(Restart(host, SIGKILL));
  const int inner = lab_.NumInnerMaps("a1");
  for (const char* job : {"one", "two"}) {
    auto ranks = lab_.Join(job, {{"w1", 0}, {"w2", 1}});
    ASSERT_TRUE(ranks[0].ok) << ranks[0].error.ToString();
    lab_.ExpectSum(ranks, 3);
    lab_.Leave(ranks);
    ASSERT_TRUE(WaitUntil([&] { return lab_.NumInnerMaps("a1") == inner; }));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectProgress(20));
  StopRanks();
}

TEST_F(DaemonRestart, a_rank_that_died_while_its_daemon_was_away_is_named) {
  more_config_ = "[job]\nlost_ms = 0";  // nothing else tells of it
  for (const char* host : {"w1", "w2", "a1"}) ASSERT_NO_FATAL_FAILURE(lab_.Start(host, more_config_));
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2"}));
  lab_.Signal("w2", SIGKILL);
  Kill(1);
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w2", more_config_));
  EXPECT_THAT(ErrorOf(0), HasSubstr(Who(1, "w2") + " of job 'demo' exited without leaving"));
  for (const char* host : {"w1", "w2", "a1"}) EXPECT_TRUE(WaitUntil([&] { return lab_.NumInnerMaps(host) == 0; })) << host;
}

TEST_F(DaemonRestart, a_rank_that_does_not_come_back_is_lost_and_one_that_is_late_hears_why) {
  lab_.UseDaemon("reconnect_ms = 700");
  more_config_ = "[job]\nlost_ms = 0";
  for (const char* host : {"w1", "w2", "a1"}) ASSERT_NO_FATAL_FAILURE(lab_.Start(host, more_config_));
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2"}));
  ::kill(Pid(1), SIGSTOP);
  lab_.Signal("w2", SIGKILL);
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w2", more_config_));
  EXPECT_THAT(ErrorOf(0), HasSubstr(Who(1, "w2") + " did not come back to mlnetd, which was restarted, within 700 ms"));
  ::kill(Pid(1), SIGCONT);
  EXPECT_THAT(ErrorOf(1), HasSubstr(Who(1, "w2") + " did not come back to mlnetd"));
}

TEST_F(DaemonRestart, a_job_that_was_deleted_meanwhile_is_removed) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2"}));
  lab_.Signal("w1", SIGKILL);
  ASSERT_GT(lab_.NumInnerMaps("w1"), 0);
  lab_.Call("a1", "job.delete", {{"name", "demo"}});
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  EXPECT_EQ(lab_.NumInnerMaps("w1"), 0);
  for (const size_t rank : {0, 1}) EXPECT_THAT(ErrorOf(rank), HasSubstr("job 'demo'"));
  EXPECT_TRUE(WaitUntil([&] { return lab_.Call("w1", "job.list")["jobs"].empty(); }));
}

TEST_F(DaemonRestart, what_no_job_names_is_removed_and_what_one_does_stays) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2"}));
  const int inner = lab_.NumInnerMaps("a1");
  lab_.Signal("a1", SIGKILL);
  // As a daemon leaves it that is killed half through: everything but the job's entry.
  LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE | BPF_F_INNER_MAP);
  const Fd words(bpf_map_create(BPF_MAP_TYPE_ARRAY, "half", 4, sizeof(mlnet_words), 2, &opts));
  const uint32_t key = 77;
  const int words_fd = words.get();
  const std::string pin = lab_.PinPath("a1") + "/v" + std::to_string(MLNET_ABI_VERSION) + "/inner/ml_words/" + std::to_string(key);
  ASSERT_EQ(bpf_obj_pin(words_fd, pin.c_str()), 0);
  ASSERT_EQ(bpf_map_update_elem(Pinned("a1", "ml_words").get(), &key, &words_fd, BPF_ANY), 0);
  ASSERT_EQ(lab_.NumInnerMaps("a1"), inner + 1);
  ASSERT_NO_FATAL_FAILURE(lab_.Start("a1"));
  EXPECT_EQ(lab_.NumInnerMaps("a1"), inner);
  EXPECT_THAT(lab_.Log("a1"), HasSubstr("removed 1 places"));
  EXPECT_FALSE(std::filesystem::exists(pin));
  ASSERT_NO_FATAL_FAILURE(ExpectProgress(20));
  StopRanks();
}

TEST_F(DaemonRestart, maps_of_another_size_are_not_taken_over_and_the_job_says_why) {
  for (const char* host : {"w1", "w2", "a1"}) ASSERT_NO_FATAL_FAILURE(lab_.Start(host, "[job]\nrequire_mode = \"kernel\""));
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2"}));
  lab_.Signal("a1", SIGTERM);
  ASSERT_NO_FATAL_FAILURE(ExpectProgress(5));
  ASSERT_NO_FATAL_FAILURE(lab_.Start("a1", "[datapath]\nslots = 4096"));
  for (const size_t rank : {0, 1}) {
    EXPECT_THAT(ErrorOf(rank), HasSubstr("mlnetd on host a1 was restarted, and could not go on with the job: the earlier mlnetd's map "
                                         "ml_slots has entries 65536, this one wants 4096"));
  }
  EXPECT_EQ(lab_.NumInnerMaps("a1"), 0);
  EXPECT_TRUE(WaitUntil([&] { return JobOn("a1")["joined"] == 0; }));
  auto ranks = lab_.Join("demo", {{"w1", 0}, {"w2", 1}});
  ASSERT_TRUE(ranks[0].ok) << ranks[0].error.ToString();
  lab_.ExpectSum(ranks, 0);
  lab_.Leave(ranks);
}

TEST_F(DaemonRestart, ranks_that_may_go_on_in_a_ring_then_and_daemons_are_restarted_under_that_too) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2"}));
  lab_.Signal("a1", SIGTERM);
  ASSERT_NO_FATAL_FAILURE(lab_.Start("a1", "[datapath]\nslots = 4096"));
  ASSERT_TRUE(WaitUntil([&] { return JobOn("w1")["mode"] == "ring"; }));
  ASSERT_NO_FATAL_FAILURE(ExpectProgress(20));
  for (const auto& [host, signal] : {std::pair{"w1", SIGKILL}, {"w2", SIGTERM}}) {
    ASSERT_NO_FATAL_FAILURE(Restart(host, signal));
    ASSERT_NO_FATAL_FAILURE(ExpectProgress(20));
  }
  EXPECT_EQ(JobOn("w1")["state"], "ready");
  StopRanks();
}

TEST_F(DaemonRestart, another_process_cannot_come_back_as_a_rank) {
  more_config_ = "[job]\nlost_ms = 0";
  for (const char* host : {"w1", "w2", "a1"}) ASSERT_NO_FATAL_FAILURE(lab_.Start(host, more_config_));
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2"}));
  const uint64_t incarnation = Incarnation();
  ::kill(Pid(0), SIGSTOP);  // it would be first
  lab_.Signal("w1", SIGKILL);
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  const Error refused = lab_.CallError("w1", "attach", {{"job", "demo"}, {"incarnation", incarnation}, {"rank", 0}});
  EXPECT_EQ(refused.code, ErrorCode::kPermission);
  EXPECT_THAT(refused.message, HasSubstr("is not rank 0 of job 'demo'"));
  ::kill(Pid(0), SIGCONT);
}

TEST_F(DaemonRestart, clean_ends_what_a_dead_daemon_left) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2"}));
  const std::string clean = "nsenter --net=/run/netns/" + lab_.Netns("w1") + " " MLNETD_BINARY " --clean --config " + lab_.ConfigFile("w1");
  EXPECT_EQ(Shell(clean).exit_code, 6) << "not under a daemon that lives";
  lab_.Signal("w1", SIGTERM);
  const auto links = [&] { return Shell("ip -n " + lab_.Netns("w1") + " link show").output; };
  EXPECT_THAT(links(), HasSubstr("xdp"));
  EXPECT_THAT(links(), HasSubstr("mlnet0"));
  const Ran ran = Shell(clean);
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  // Of a link of which only the pin was left: the kernel does it later, by a worker thread.
  EXPECT_TRUE(WaitUntil([&] { return links().find("xdp") == std::string::npos; })) << links();
  EXPECT_THAT(links(), Not(HasSubstr("mlnet0")));
  EXPECT_NE(Shell("ls " + lab_.PinPath("w1")).exit_code, 0);
  EXPECT_THAT(ErrorOf(1), HasSubstr("mlnetd on host w1 has stopped"));
}

}  // namespace
}  // namespace mlnet::test
