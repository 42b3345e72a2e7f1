// SPDX-License-Identifier: Apache-2.0
// The command line: what status and exec give, and what each mistake is answered with.
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "lab_fixture.h"

namespace mlnet::lab_test {
namespace {

using testing::HasSubstr;

class Command : public testing::Test {
 protected:
  static void SetUpTestSuite() { lab_ = new Lab({"--no-daemons", "--workers", "2", "--rate", "100mbit"}); }
  static void TearDownTestSuite() { delete lab_; }
  static Lab* lab_;
};
Lab* Command::lab_ = nullptr;

TEST_F(Command, status_lists_hosts_in_order_with_addresses_and_sockets) {
  const Output status = RunLab({"-j", "--name", lab_->name(), "status"});
  ASSERT_EQ(status.exit_code, 0);
  const Json j = Json::parse(status.out);
  EXPECT_EQ(j["schema"], "mlnet-lab.status/1");
  EXPECT_EQ(j["name"], lab_->name());
  ASSERT_EQ(j["hosts"].size(), 3u);
  const char* names[] = {"w1", "w2", "a1"};
  for (size_t i = 0; i < 3; ++i) {
    const Json& host = j["hosts"][i];
    EXPECT_EQ(host["name"], names[i]);
    EXPECT_EQ(host["role"], i < 2 ? "worker" : "aggregator");
    EXPECT_EQ(host["netns"], "ml-" + lab_->name() + "-" + names[i]);
    EXPECT_EQ(host["address"], "10.77.0." + std::to_string(i + 1));
    EXPECT_EQ(host["iface"], "eth0");
    EXPECT_EQ(host["socket"], "/run/mlnet-lab/" + lab_->name() + "/" + names[i] + "/mlnetd.sock");
    EXPECT_TRUE(host["pid"].is_null());
  }
  EXPECT_EQ(j["hosts"][0]["rate_bps"], 100'000'000);
  EXPECT_EQ(j["hosts"][2]["rate_bps"], 2'000'000'000);
}

TEST_F(Command, exec_runs_on_the_host_and_passes_the_exit_code) {
  EXPECT_EQ(lab_->Exec("w2", {"sh", "-c", "exit 37"}).exit_code, 37);
  EXPECT_THAT(lab_->Exec("w2", {"ip", "-o", "-4", "addr", "show", "eth0"}).out, HasSubstr("10.77.0.2/24"));
  EXPECT_EQ(lab_->Exec("w2", {"sh", "-c", "echo $MLNET_SOCKET"}).out,
            "/run/mlnet-lab/" + lab_->name() + "/w2/mlnetd.sock\n");
  // `ip netns exec` would hide the pins.
  EXPECT_EQ(lab_->Exec("w2", {"stat", "-f", "-c", "%T", "/sys/fs/bpf"}).out, "bpf_fs\n");
}

TEST_F(Command, xdp_off_and_on_moves_the_programs_of_all_ports) {
  const auto ports = [] { return lab_->Exec("switch", {"ip", "-o", "link", "show", "type", "veth"}).out; };
  const auto offload = [] { return lab_->Exec("w1", {"ethtool", "-k", "eth0"}).out; };
  EXPECT_THAT(ports(), HasSubstr("prog/xdp"));
  EXPECT_THAT(offload(), HasSubstr("tx-udp-segmentation: off"));
  EXPECT_EQ(RunLab({"--name", lab_->name(), "xdp", "off"}).exit_code, 0);
  EXPECT_THAT(ports(), testing::Not(HasSubstr("prog/xdp")));
  EXPECT_THAT(offload(), HasSubstr("tx-udp-segmentation: on"));
  EXPECT_EQ(RunLab({"--name", lab_->name(), "xdp", "on"}).exit_code, 0);
  EXPECT_THAT(ports(), HasSubstr("prog/xdp"));
}

TEST_F(Command, up_of_a_lab_that_exists_says_how_to_remove_it) {
  const Output up = RunLab({"-j", "--name", lab_->name(), "up", "--no-daemons"});
  EXPECT_EQ(up.exit_code, 5);
  EXPECT_THAT(up.err, HasSubstr("lab '" + lab_->name() + "' exists"));
  EXPECT_THAT(up.err, HasSubstr("mlnet-lab down --name " + lab_->name()));
  const Json j = Json::parse(up.out);
  EXPECT_EQ(j["schema"], "mlnet-lab.error/1");
  EXPECT_EQ(j["code"], "E_CONFLICT");
}

TEST_F(Command, unknown_host_lists_the_hosts) {
  const Output exec = lab_->Exec("w9", {"true"});
  EXPECT_EQ(exec.exit_code, 3);
  EXPECT_THAT(exec.err, HasSubstr("has no host 'w9'"));
  EXPECT_THAT(exec.err, HasSubstr("w1, w2, a1"));
}

struct Mistake {
  std::vector<std::string> args;
  int exit_code;
  std::string says;
};

TEST(CommandMistakes, each_is_named) {
  const std::string name = FreshName();
  for (const Mistake& m : std::vector<Mistake>{
           {{"--name", "a_name_that_is_too_long", "up"}, 2, "is too long: 23 characters, at most 16"},
           {{"--name", "Lab-1", "up"}, 2, "'Lab-1' is not a valid lab name"},
           {{"--name", "../etc", "down"}, 2, "is not a valid lab name"},
           {{"--name", name, "up", "--rate", "fast"}, 2, "'fast' is not a rate"},
           {{"--name", name, "up", "--agg-rate", "1bit"}, 2, "out of range"},
           {{"--name", name, "up", "--loss", "101"}, 2, "'101' is not a percentage"},
           {{"--name", name, "up", "--delay", "2"}, 2, "'2' is not a delay"},
           {{"--name", name, "up", "--mtu", "100"}, 2, "MTU 100 is out of range"},
           {{"--name", name, "up", "--mtu", "5000"}, 1, "--mtu 3498"},
           {{"--name", name, "up", "--workers", "0"}, 2, "at least one worker"},
           {{"--name", name, "up", "--rate", "unlimited", "--agg-rate", "unlimited", "--mark", "48"}, 2, "no link has a rate"},
           {{"--name", name, "up", "--workers", "65"}, 2, "1 to 64 hosts, not 66"},
           {{"--name", name, "up", "--topology", "/does/not/exist"}, 2, "cannot read topology file"},
           {{"--name", name, "status"}, 3, "there is no lab '" + name + "'"},
           {{"--name", name, "fault", "show"}, 3, "there is no lab"},
           {{"--name", name, "nonsense"}, 2, "A subcommand is required"},
       }) {
    const Output out = RunLab(m.args);
    EXPECT_EQ(out.exit_code, m.exit_code) << testing::PrintToString(m.args) << out.err;
    EXPECT_THAT(out.err, HasSubstr(m.says)) << testing::PrintToString(m.args);
  }
  EXPECT_FALSE(std::filesystem::exists("/run/mlnet-lab/" + name));
}

TEST(CommandMistakes, topology_errors_name_the_host_and_the_key) {
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"hosts: [{name: w1, sped: 1mbit}]", "hosts[0]: unknown key 'sped'"},
           {"hosts: [{name: w1}, {name: w1}]", "host 'w1' is named twice"},
           {"hosts: [{name: w1, role: king}]", "hosts[0].role: 'king' is not a role"},
           {"hosts: [{name: w1, faults: {tx: {loss: lots}}}]",
            "hosts[0].faults.tx.loss: 'lots' is not a percentage"},
           {"hosts: [{name: w1, rate: [}]", "error at line 1"},
           {"version: 7\nhosts: [{name: w1}]", "version must be 1"},
           {"name: x", "hosts must be a list"},
           {", {name: w1}]", "more than one document"},
           {"hosts: [{name: w\x82}]", "a name is not UTF-8"},
           {"hosts: [{name: \"w\\N\"}]", "a name is not UTF-8"},
       }) {
    const TextFile file(text);
    const Output up = RunLab({"--name", FreshName(), "up", "--no-daemons", "--topology", file.path()});
    EXPECT_EQ(up.exit_code, 2) << text;
    EXPECT_THAT(up.err, HasSubstr(says)) << text;
  }
}

TEST(CommandMistakes, without_root_up_says_so) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(99);
    const Output up = RunLab({"--name", "unprivileged", "up"});
    _exit(up.exit_code == 4 && up.err.find("needs root") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Topology, example_file_comes_up_as_written) {
  const std::string file = std::string(MLNET_SOURCE_DIR) + "/tools/mlnet-lab/topology.example.yaml";
  const Lab lab({"--no-daemons", "--topology", file, "--rate", "300mbit"});
  ASSERT_EQ(lab.status()["hosts"].size(), 5u);
  const Json w4 = lab.HostStatus("w4");
  EXPECT_EQ(w4["rack"], "r2");
  EXPECT_EQ(w4["rate_bps"], 300'000'000) << "a flag overrides the file";
  EXPECT_EQ(w4["faults"]["tx"]["loss_ppm"], 10'000);
  EXPECT_EQ(w4["faults"]["rx"]["loss_ppm"], 1'000);
  EXPECT_EQ(w4["faults"]["rx"]["delay_us"], 2'000);
  EXPECT_EQ(lab.HostStatus("a1")["rate_bps"], 2'000'000'000);
}

TEST(Topology, is_shown_without_building_anything) {
  const TextFile file("name: shown\nhosts: [{name: a1, role: aggregator}, {name: w1, faults: {rx: {loss: 1.5}}}]");
  const Output shown = RunLab({"-j", "topology", file.path()});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  const Json topology = Json::parse(shown.out);
  EXPECT_EQ(topology["schema"], "mlnet-lab.topology/1");
  EXPECT_EQ(topology["hosts"][0]["name"], "w1") << "workers first";
  EXPECT_EQ(topology["hosts"][0]["address"], "10.77.0.1");
  EXPECT_EQ(topology["hosts"][0]["faults"]["rx"]["loss_ppm"], 15'000);
  EXPECT_EQ(topology["hosts"][0]["faults"]["tx"]["loss_ppm"], 0);
  EXPECT_FALSE(std::filesystem::exists("/run/mlnet-lab/shown"));
  EXPECT_EQ(RunLab({"topology", "/does/not/exist"}).exit_code, 2);
}

// The kernel lacks something: simulated by an `ip` that refuses ifb.
TEST(CommandMistakes, missing_kernel_feature_is_named) {
  const std::string dir = testing::TempDir() + FreshName();
  std::filesystem::create_directories(dir);
  std::ofstream(dir + "/ip")
      << "#!/bin/sh\n"
         "case \"$*\" in *' ifb'*) echo 'Error: Unknown device type.' >&2; exit 2;; esac\n"
         "case \"$*\" in *-batch*) in=$(cat); case \"$in\" in *'type ifb'*)\n"
         "echo 'Error: Unknown device type.' >&2; exit 1;; esac; printf '%s\\n' \"$in\" | /sbin/ip \"$@\"; "
         "exit;; esac\n"
         "exec /sbin/ip \"$@\"\n";
  std::filesystem::permissions(dir + "/ip", std::filesystem::perms::owner_all);
  const Output up = RunProgram({"env", "PATH=" + dir + ":" + getenv("PATH"), LabProgram(), "--name",
                                FreshName(), "up", "--no-daemons"});
  EXPECT_EQ(up.exit_code, 6) << up.err;
  EXPECT_THAT(up.err, HasSubstr("this kernel lacks ifb (CONFIG_IFB)"));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace mlnet::lab_test
