// SPDX-License-Identifier: Apache-2.0
// Daemons as mlnetd.service starts them: as a user of their own, with three capabilities. They attach, sum, are restarted under
// traffic and cleaned up after; what they may not see they say.
#include <filesystem>
#include <fstream>

#include "lab/restart_fixture.h"

namespace mlnet::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uid_t kUser = 65534;
constexpr const char* kHosts[] = {"w1", "w2", "a1"};
constexpr const char* kKernelOnly = "[job]\nrequire_mode = \"kernel\"";  // else ranks go on without a1

class DaemonUser : public RestartLab {
 protected:
  void SetUp() override {
    RestartLab::SetUp();
    lab_.UseUser(kUser);
  }
  void StartAll() {
    for (const char* host : kHosts) ASSERT_NO_FATAL_FAILURE(lab_.Start(host, more_config_));
  }
  std::string StatusLine(const std::string& host, const std::string& name) const {
    std::ifstream file("/proc/" + std::to_string(lab_.Pid(host)) + "/status");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(name + ":\t")) return line.substr(name.size() + 2);
    }
    return "";
  }
  std::string Inner(const std::string& host) const { return lab_.PinPath(host) + "/v" + std::to_string(MLNET_ABI_VERSION) + "/inner"; }
  int NumInnerPins(const std::string& host) const {
    int count = 0;
    std::error_code ec;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(Inner(host), ec)) count += !entry.is_directory();
    return count;
  }
  Json JobOn(const std::string& host) { return lab_.Call(host, "job.show", {{"name", "demo"}}); }
  Json Nic(const std::string& host) {
    const Json list = lab_.Call(host, "iface.list");
    for (const Json& iface : list["ifaces"]) {
      if (iface["name"] == "eth0") return iface;
    }
    return Json::object();
  }
};

TEST_F(DaemonUser, sums_go_on_while_daemons_without_root_are_killed_stopped_and_restarted) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  // CAP_NET_ADMIN is bit 12, CAP_PERFMON 38, CAP_BPF 39.
  for (const char* set : {"CapEff", "CapPrm", "CapBnd", "CapAmb"}) EXPECT_EQ(StatusLine("a1", set), "000000c000001000") << set;
  EXPECT_EQ(StatusLine("a1", "Uid"), "65534\t65534\t65534\t65534");
  EXPECT_EQ(StatusLine("a1", "NoNewPrivs"), "1");
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2", "w2"}));
  const Json before = JobOn("a1");
  for (const auto& [host, signal] : {std::pair{"w2", SIGKILL}, {"a1", SIGKILL}, {"w1", SIGTERM}, {"a1", SIGTERM}}) {
    EXPECT_EQ(NumInnerPins(host), lab_.NumInnerMaps(host)) << host;
    ASSERT_NO_FATAL_FAILURE(Restart(host, signal));
    EXPECT_EQ(JobOn(host)["epoch"], before["epoch"]);
    EXPECT_EQ(lab_.Call(host, "status")["state"], "ok") << lab_.Call(host, "status")["problems"];
    for (const Json& check : lab_.Call(host, "probe")["checks"]) EXPECT_EQ(check["ok"], true) << check;
  }
  ASSERT_NO_FATAL_FAILURE(StopRanks());
  for (const char* host : kHosts) EXPECT_TRUE(WaitUntil([&] { return lab_.NumInnerMaps(host) == 0 && NumInnerPins(host) == 0; })) << host;
  for (const char* host : kHosts) {
    lab_.Signal(host, SIGTERM);
    EXPECT_FALSE(std::filesystem::exists(lab_.PinPath(host))) << host;
  }
}

TEST_F(DaemonUser, a_filter_of_an_earlier_daemon_is_known_by_its_name) {
  more_config_ = "[priority]\nattach = \"clsact\"";
  ASSERT_NO_FATAL_FAILURE(StartAll());
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2"}));
  const std::string filters = "tc -n " + lab_.Netns("w1") + " filter show dev eth0 egress";
  EXPECT_EQ(Nic("w1")["tags"], "clsact");
  ASSERT_NO_FATAL_FAILURE(Restart("w1", SIGKILL));
  EXPECT_EQ(Nic("w1")["tags"], "clsact");
  EXPECT_EQ(lab_.Call("w1", "status")["state"], "ok") << lab_.Call("w1", "status")["problems"];
  EXPECT_THAT(Shell(filters).output, HasSubstr("ml_tag:["));
  ASSERT_NO_FATAL_FAILURE(StopRanks());
  // Under a job that runs a daemon leaves all as it is.
  for (const char* host : kHosts) ASSERT_TRUE(WaitUntil([&] { return lab_.NumInnerMaps(host) == 0; })) << host;
  for (const char* host : kHosts) lab_.Signal(host, SIGTERM);
  EXPECT_THAT(Shell(filters).output, Not(HasSubstr("ml_tag")));
}

TEST_F(DaemonUser, a_job_whose_maps_an_older_daemon_did_not_pin_ends_by_name_or_goes_on_with_root) {
  more_config_ = kKernelOnly;
  ASSERT_NO_FATAL_FAILURE(StartAll());
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2"}));
  lab_.Signal("w1", SIGKILL);
  std::filesystem::remove_all(Inner("w1"));
  lab_.UseUser(0);
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1", more_config_));
  ASSERT_NO_FATAL_FAILURE(ExpectBack("w1"));
  EXPECT_EQ(NumInnerPins("w1"), lab_.NumInnerMaps("w1")) << "they have pins from now on";
  // So that a daemon without root can go on from there.
  lab_.Signal("w1", SIGTERM);
  lab_.UseUser(kUser);
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1", more_config_));
  ASSERT_NO_FATAL_FAILURE(ExpectProgress(20));
  lab_.Signal("a1", SIGKILL);
  std::filesystem::remove_all(Inner("a1"));
  ASSERT_NO_FATAL_FAILURE(lab_.Start("a1", more_config_));
  for (const size_t rank : {0, 1}) {
    EXPECT_THAT(ErrorOf(rank), AllOf(HasSubstr("mlnetd on host a1 was restarted, and could not go on with the job"), HasSubstr("open ml_jobs")));
  }
  EXPECT_TRUE(WaitUntil([&] { return lab_.NumInnerMaps("a1") == 0 && NumInnerPins("a1") == 0; }));
}

TEST_F(DaemonUser, what_a_killed_daemon_left_is_cleaned_and_a_new_one_starts) {
  more_config_ = kKernelOnly;
  ASSERT_NO_FATAL_FAILURE(StartAll());
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2"}));
  lab_.Signal("a1", SIGKILL);
  ASSERT_GT(NumInnerPins("a1"), 0);
  // As root, which is who does it.
  const Ran cleaned = Shell("nsenter --net=/run/netns/" + lab_.Netns("a1") + " " + MLNETD_BINARY + " --clean --config " + lab_.ConfigFile("a1"));
  EXPECT_EQ(cleaned.exit_code, 0) << cleaned.output;
  EXPECT_FALSE(std::filesystem::exists(lab_.PinPath("a1")));
  for (const size_t rank : {0, 1}) EXPECT_THAT(ErrorOf(rank), HasSubstr("mlnetd on host a1 has stopped"));
  ASSERT_NO_FATAL_FAILURE(lab_.Start("a1", more_config_));
  auto ranks = lab_.Join("next", {{"w1", 0}, {"w2", 1}});
  ASSERT_TRUE(ranks[0].ok) << ranks[0].error.ToString();
  lab_.ExpectSum(ranks, 3);
  lab_.Leave(ranks);
}

TEST_F(DaemonUser, somebody_elses_program_is_told_without_its_name) {
  const Fd foreign = lab_.AttachPass("w1");
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  const std::string alone = Nic("w1")["why"];
  EXPECT_THAT(alone, AllOf(HasSubstr("another XDP program is attached, id "), HasSubstr("bpftool prog show id ")));
  const Error shared = lab_.CallError("w1", "iface.attach", {{"name", "eth0"}, {"share", "shared"}});
  EXPECT_EQ(shared.code, ErrorCode::kPermission);
  EXPECT_THAT(shared.message, AllOf(HasSubstr("through the libxdp dispatcher"), HasSubstr("takes CAP_SYS_ADMIN")));
}

}  // namespace
}  // namespace mlnet::test
