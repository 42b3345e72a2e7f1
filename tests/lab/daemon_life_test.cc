// SPDX-License-Identifier: Apache-2.0
// The daemon's own life: start, refusal to start, stop, death, restart; and that jobs leave nothing behind.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "lab/daemon_fixture.h"

namespace mlnet::test {
namespace {

using ::testing::HasSubstr;

bool HasProgram(const DaemonLab& lab, const std::string& host) {
  return Shell("ip -n " + lab.Netns(host) + " link show dev eth0").output.find("xdp") != std::string::npos;
}

// The kernel takes a link's program off after the last that held it is gone: by a worker thread of its own, where that was a pin.
bool LosesProgram(const DaemonLab& lab, const std::string& host) {
  return WaitUntil([&] { return !HasProgram(lab, host); });
}

std::string Nsenter(const DaemonLab& lab, const std::string& host) {
  return "nsenter --net=/run/netns/" + lab.Netns(host) + " ";
}

TEST(daemon_life, jobs_leave_neither_maps_nor_descriptors_behind) {
  DaemonLab lab({"w1", "w2", "a1"});
  ASSERT_NO_FATAL_FAILURE(lab.StartAll());
  std::map<std::string, int> fds;
  for (const char* host : {"w1", "w2", "a1"}) {
    // Start looked at the sockets too: wait until it has closed those connections. A busy daemon may still have one, or a socket for a look
    // at its interfaces: so less than this is right later, and a leak in each round is more.
    ASSERT_TRUE(WaitUntil([&] { return std::exchange(fds[host], lab.NumFds(host)) == lab.NumFds(host); }));
  }
  for (int round = 0; round < 6; ++round) {
    auto ranks = lab.Join("demo", {{"w1", 0}, {"w2", 1}});
    ASSERT_TRUE(ranks[0].ok) << ranks[0].error.ToString();
    EXPECT_EQ(ranks[0].reply.result["epoch"], round + 1);
    // aggregator: entry, the words of the first class and of its fix-up stream, fan; worker: entry, inbox, wake, ring
    EXPECT_EQ(lab.NumInnerMaps("a1"), 4);
    EXPECT_EQ(lab.NumInnerMaps("w1"), 4);
    if (round % 2 == 0) lab.Leave(ranks);
    ranks.clear();  // in odd rounds the ranks are lost
    for (const char* host : {"w1", "w2", "a1"}) {
      ASSERT_TRUE(WaitUntil([&] { return lab.NumInnerMaps(host) == 0; })) << host;
      ASSERT_TRUE(WaitUntil([&] { return lab.NumFds(host) <= fds[host]; }))
          << host << " round " << round << ": " << lab.NumFds(host) << ", before the first job " << fds[host];
    }
  }
}

TEST(daemon_life, slots_of_an_ended_job_serve_the_next_one_from_scratch) {
  DaemonLab lab({"w1", "w2", "a1"});
  ASSERT_NO_FATAL_FAILURE(lab.StartAll());
  // Different names: other job ids, but the same epoch number and the same slots.
  for (const char* job : {"one", "two"}) {
    auto ranks = lab.Join(job, {{"w1", 0}, {"w2", 1}});
    ASSERT_TRUE(ranks[0].ok) << ranks[0].error.ToString();
    EXPECT_EQ(ranks[0].reply.result["epoch"], 1);
    const uint64_t word = job[0];
    lab.Contribute("w1", ranks[0], 0, word);
    lab.Contribute("w2", ranks[1], 0, word);
    const volatile mlnet_cell* cell = ranks[0].MapInbox();
    ASSERT_TRUE(WaitUntil([&] { return cell->published == MLNET_STAMP(1, 0); })) << job;
    EXPECT_EQ(cell->w[0], 2 * word);
    lab.Leave(ranks);
    ASSERT_TRUE(WaitUntil([&] { return lab.NumInnerMaps("a1") == 0; }));
  }
}

TEST(daemon_life, busy_interface_is_named_and_taken_once_it_is_free) {
  DaemonLab lab({"w1"});
  Fd other = lab.AttachPass("w1");
  ASSERT_TRUE(other);
  ASSERT_NO_FATAL_FAILURE(lab.Start("w1"));
  const Json status = lab.Call("w1", "status");
  EXPECT_EQ(status["state"], "degraded");
  EXPECT_THAT(status["problems"][0]["message"].get<std::string>(), HasSubstr("another XDP program is attached ('test_pass'), id "));
  EXPECT_THAT(status["problems"][0]["hint"].get<std::string>(), HasSubstr("xdp off"));
  EXPECT_EQ(lab.CallError("w1", "iface.attach", {{"name", "eth0"}}).code, ErrorCode::kConflict);
  EXPECT_THAT(lab.Join("demo", {{"w1", 0}})[0].error.message, HasSubstr("another XDP program"));
  EXPECT_TRUE(HasProgram(lab, "w1")) << "the other program was not evicted";
  other.Reset();
  EXPECT_TRUE(WaitUntil([&] { return lab.Call("w1", "status")["state"] == "ok"; }));
}

TEST(daemon_life, interrupt_detaches_unpins_and_ends_the_jobs_by_name) {
  DaemonLab lab({"w1", "w2", "a1"});
  ASSERT_NO_FATAL_FAILURE(lab.StartAll());
  auto ranks = lab.Join("demo", {{"w1", 0}, {"w2", 1}});
  ASSERT_TRUE(ranks[0].ok) << ranks[0].error.ToString();
  ASSERT_TRUE(HasProgram(lab, "a1"));
  ASSERT_TRUE(std::filesystem::exists(lab.PinPath("a1")));
  lab.Signal("a1", SIGINT);
  EXPECT_TRUE(LosesProgram(lab, "a1"));
  EXPECT_FALSE(std::filesystem::exists(lab.PinPath("a1")));
  EXPECT_FALSE(std::filesystem::exists(lab.Socket("a1")));
  for (Joined& rank : ranks) {
    const Json push = rank.WaitPush("job_failed");
    EXPECT_EQ(push["code"], "E_UNAVAILABLE");
    EXPECT_THAT(push["message"].get<std::string>(), HasSubstr("mlnetd on host a1 is stopping"));
  }
}

TEST(daemon_life, stop_without_a_job_detaches_and_unpins) {
  DaemonLab lab({"w1"});
  ASSERT_NO_FATAL_FAILURE(lab.Start("w1"));
  ASSERT_TRUE(HasProgram(lab, "w1"));
  lab.Signal("w1", SIGTERM);
  EXPECT_TRUE(LosesProgram(lab, "w1"));
  EXPECT_FALSE(std::filesystem::exists(lab.PinPath("w1")));
  EXPECT_FALSE(std::filesystem::exists(lab.Socket("w1")));
}

TEST(daemon_life, stop_and_death_leave_a_job_that_is_ready_and_end_one_that_is_not) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    DaemonLab lab({"w1", "w2", "a1"});
    ASSERT_NO_FATAL_FAILURE(lab.StartAll());
    auto ranks = lab.Join("demo", {{"w1", 0}, {"w2", 1}});
    ASSERT_TRUE(ranks[0].ok) << ranks[0].error.ToString();
    lab.Signal("a1", signal);
    EXPECT_TRUE(HasProgram(lab, "a1"));
    lab.ExpectSum(ranks, 0);
    ASSERT_NO_FATAL_FAILURE(lab.Start("a1"));
    lab.ExpectSum(ranks, 1);
    lab.Leave(ranks);
    ASSERT_TRUE(WaitUntil([&] { return lab.NumInnerMaps("a1") == 0; }));
    // A rank that waits for another one has nothing in the kernel: its join fails.
    std::thread waits([&] { EXPECT_EQ(lab.Join("late", {{"w1", 0}})[0].error.code, ErrorCode::kUnavailable); });
    ASSERT_TRUE(WaitUntil([&] { return lab.Call("w2", "job.list")["jobs"].dump().find("late") != std::string::npos; }));
    lab.Signal("w1", signal);
    waits.join();
    ASSERT_NO_FATAL_FAILURE(lab.Start("w1"));
    auto again = lab.Join("late", {{"w1", 0}, {"w2", 1}});
    EXPECT_TRUE(again[0].ok) << again[0].error.ToString();
  }
}

TEST(daemon_life, program_stays_attached_where_the_operator_wants_it) {
  DaemonLab lab({"w1"});
  ASSERT_NO_FATAL_FAILURE(lab.Start("w1", "detach_on_stop = false"));
  lab.Signal("w1", SIGTERM);
  EXPECT_TRUE(HasProgram(lab, "w1"));
  ASSERT_NO_FATAL_FAILURE(lab.Start("w1"));  // takes over from its own leftovers
  EXPECT_EQ(lab.Call("w1", "status")["state"], "ok");
  lab.Signal("w1", SIGTERM);
  EXPECT_TRUE(LosesProgram(lab, "w1"));
}

std::string LinkOf(const DaemonLab& lab, const std::string& iface) {
  return Shell("ip -n " + lab.Netns("w1") + " -o link show " + iface + " 2>&1").output;
}

TEST(daemon_life, local_link_lives_as_long_as_the_daemon_and_is_replaced_after_a_crash) {
  DaemonLab lab({"w1"});
  ASSERT_NO_FATAL_FAILURE(lab.Start("w1"));
  const std::string first = LinkOf(lab, "mlnet0");
  EXPECT_THAT(first, HasSubstr("xdp"));
  EXPECT_THAT(LinkOf(lab, "mlnet1"), HasSubstr("xdp"));
  lab.Signal("w1", SIGKILL);
  EXPECT_THAT(LinkOf(lab, "mlnet0"), HasSubstr("mlnet0")) << "nobody was there to remove it";
  ASSERT_NO_FATAL_FAILURE(lab.Start("w1"));
  EXPECT_THAT(LinkOf(lab, "mlnet0"), HasSubstr("xdp"));
  EXPECT_NE(LinkOf(lab, "mlnet0"), first);
  lab.Signal("w1", SIGTERM);
  EXPECT_THAT(LinkOf(lab, "mlnet0"), HasSubstr("does not exist"));
}

TEST(daemon_life, somebody_elses_interface_of_that_name_is_left_alone) {
  DaemonLab lab({"w1"});
  ASSERT_EQ(Shell("ip -n " + lab.Netns("w1") + " link add mlnet0 type veth peer name mlnet1").exit_code, 0);
  const std::string theirs = LinkOf(lab, "mlnet0");
  ASSERT_NO_FATAL_FAILURE(lab.Start("w1"));
  EXPECT_THAT(lab.Log("w1"), HasSubstr("there is an interface mlnet0 of somebody else"));
  EXPECT_EQ(lab.Call("w1", "status")["state"], "ok") << "it still sums for others";
  lab.Signal("w1", SIGTERM);
  EXPECT_EQ(LinkOf(lab, "mlnet0"), theirs);
}

TEST(daemon_life, second_daemon_of_an_instance_is_refused) {
  DaemonLab lab({"w1"});
  ASSERT_NO_FATAL_FAILURE(lab.Start("w1"));
  const Ran ran = Shell(Nsenter(lab, "w1") + MLNETD_BINARY " --config " + lab.ConfigFile("w1"));
  EXPECT_EQ(ran.exit_code, 6);
  EXPECT_THAT(ran.output, HasSubstr("another mlnetd runs as instance"));
  EXPECT_EQ(lab.Call("w1", "status")["state"], "ok") << "the first one is not disturbed";
}

TEST(daemon_life, missing_capabilities_are_named) {
  DaemonLab lab({"w1"});
  ASSERT_NO_FATAL_FAILURE(lab.Start("w1"));
  const Ran ran = Shell(Nsenter(lab, "w1") + "setpriv --bounding-set=-bpf,-net_admin " MLNETD_BINARY " --config " + lab.ConfigFile("w1"));
  EXPECT_EQ(ran.exit_code, 4);
  EXPECT_THAT(ran.output, HasSubstr("mlnetd lacks CAP_BPF, CAP_NET_ADMIN\n"));
}

TEST(daemon_life, configuration_is_checked_without_starting) {
  const TempFolder folder;
  const std::string path = folder / "mlnetd.toml";
  std::ofstream(path) << "[daemon]\nhost = \"x\"\n";
  EXPECT_EQ(Shell(MLNETD_BINARY " --check-config --config " + path).output, "OK\n");
  std::ofstream(path) << "[daemon]\nhots = \"x\"\n";
  const Ran ran = Shell(MLNETD_BINARY " --check-config --config " + path);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.output, HasSubstr(path + ":2:1: unknown key 'daemon.hots'"));
  EXPECT_THAT(ran.output, HasSubstr("did you mean 'host'?"));
  EXPECT_EQ(Shell(MLNETD_BINARY " --no-such-flag").exit_code, 2);
}

TEST(daemon_life, operators_see_interfaces_versions_and_mistakes) {
  DaemonLab lab({"a1"});
  ASSERT_NO_FATAL_FAILURE(lab.Start("a1"));
  const Json list = lab.Call("a1", "iface.list");
  EXPECT_EQ(list["schema"], "mlnet.iface.list/1");
  EXPECT_EQ(list["ifaces"][0]["name"], "eth0");
  EXPECT_EQ(list["ifaces"][0]["driver"], "veth");
  EXPECT_EQ(list["ifaces"][0]["mode"], "native");
  EXPECT_EQ(list["ifaces"][0]["via"], "bpf_link");
  EXPECT_EQ(list["ifaces"][0]["address"], lab.Address("a1"));
  EXPECT_EQ(lab.Call("a1", "version")["abi"], MLNET_ABI_VERSION);
  for (const Json& check : lab.Call("a1", "probe")["checks"]) EXPECT_TRUE(check["ok"]) << check;
  EXPECT_EQ(lab.CallError("a1", "no.such", Json::object()).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(lab.CallError("a1", "job.show", {{"name", "x"}}).code, ErrorCode::kUnavailable);
  EXPECT_EQ(lab.CallError("a1", "job.create", {{"name", "x"}, {"world_size", 2}, {"slots", 3}}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(lab.CallError("a1", "job.create", {{"name", "a/b"}, {"world_size", 2}}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(lab.CallError("a1", "leave", Json::object()).code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace mlnet::test
