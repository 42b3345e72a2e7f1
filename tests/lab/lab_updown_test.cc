// SPDX-License-Identifier: Apache-2.0
// A lab comes up whole or not at all, and goes without a trace, whatever happened to the process that made
// it.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "lab_fixture.h"

namespace mlnet::lab_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

std::set<std::string> EntriesOf(const std::string& dir, const std::string& containing) {
  std::set<std::string> names;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(dir, ec)) {
    if (entry.path().filename().string().find(containing) != std::string::npos) names.insert(entry.path());
  }
  return names;
}

// Everything on the machine that carries the lab's name, and processes that mention it.
std::set<std::string> TracesOf(const std::string& lab) {
  std::set<std::string> traces;
  for (const char* dir : {"/run/netns", "/run/mlnet-lab", "/sys/fs/bpf/mlnet", "/sys/fs/bpf/mlnet-lab"}) {
    traces.merge(EntriesOf(dir, lab));
  }
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.find(lab) != std::string::npos && entry.path() != fs::read_symlink("/proc/self"))
      traces.insert(text);
  }
  return traces;
}

std::string LinksAndQdiscs() {
  return RunProgram({"ip", "-o", "link"}).out + RunProgram({"tc", "qdisc"}).out;
}

// A folder with mlnet-lab and a shell script as its mlnetd.
class FakeDaemon {
 public:
  explicit FakeDaemon(const std::string& script) : dir_(testing::TempDir() + "fake_" + FreshName()) {
    fs::create_directories(dir_);
    fs::copy_file(LabProgram(), dir_ / "mlnet-lab");
    std::ofstream(dir_ / "mlnetd") << "#!/bin/sh\n" << script << '\n';
    fs::permissions(dir_ / "mlnetd", fs::perms::owner_all);
  }
  ~FakeDaemon() { fs::remove_all(dir_); }
  fs::path lab() const { return dir_ / "mlnet-lab"; }

 private:
  fs::path dir_;
};

TEST(UpDown, leaves_nothing_behind) {
  // In a namespace of its own, what "outside" looks like is known exactly.
  RunIn("/proc/self/ns/net", [] {
    ASSERT_EQ(unshare(CLONE_NEWNET), 0);
    const std::string before = LinksAndQdiscs();
    std::string name;
    {
      const Lab lab({"--no-daemons", "--loss", "1", "--delay", "1ms"});
      name = lab.name();
      EXPECT_EQ(EntriesOf("/run/netns", name).size(), 6u);
      EXPECT_THAT(TracesOf(name), testing::Contains(HasSubstr("delay-line")));
      EXPECT_EQ(LinksAndQdiscs(), before);
    }
    EXPECT_THAT(TracesOf(name), IsEmpty());
    EXPECT_EQ(LinksAndQdiscs(), before);
  });
}

// A parameter of the whole kernel: other labs may be up, so only what this test can know is asserted.
TEST(UpDown, htb_hysteresis_is_borrowed_and_given_back_with_the_last_lab) {
  constexpr const char* kParameter = "/sys/module/sch_htb/parameters/htb_hysteresis";
  const auto value = [] {
    std::string word;
    std::ifstream(kParameter) >> word;
    return word;
  };
  const std::string before = value();
  {
    const Lab first({"--no-daemons", "--rate", "100mbit"});
    EXPECT_EQ(value(), "1");
    { const Lab second({"--no-daemons", "--rate", "100mbit"}); }
    EXPECT_EQ(value(), "1") << "the first lab still uses it";
  }
  EXPECT_EQ(value(), before);
}

// The real daemons: they answer, let go of the NIC and take it again, and one that was killed leaves no pins.
TEST(UpDown, daemons_answer_and_leave_no_pins) {
  std::string name;
  {
    const Lab lab({"--workers", "2"});
    name = lab.name();
    EXPECT_EQ(EntriesOf("/sys/fs/bpf/mlnet", name + "-").size(), 3u);
    const auto program_on = [&](const char* host) {
      return lab.Exec(host, {"ip", "-o", "link", "show", "eth0"}).out.find("prog/xdp") != std::string::npos;
    };
    EXPECT_TRUE(program_on("w1") && program_on("a1"));
    EXPECT_EQ(RunLab({"--name", name, "xdp", "off"}).exit_code, 0);
    // The kernel may do it by a worker thread, after the last that held the link is gone.
    EXPECT_TRUE(WaitFor([&] { return !program_on("w1") && !program_on("a1"); }));
    EXPECT_EQ(RunLab({"--name", name, "xdp", "on"}).exit_code, 0);
    EXPECT_TRUE(program_on("w1") && program_on("a1"));
    const pid_t daemon = lab.HostStatus("w2")["pid"].get<pid_t>();
    ASSERT_EQ(kill(daemon, SIGKILL), 0);
    EXPECT_TRUE(WaitFor([&] {
      return Json::parse(RunLab({"-j", "--name", name, "status"}).out)["hosts"][1]["pid"].is_null();
    }));
  }
  EXPECT_THAT(TracesOf(name), IsEmpty());
}

TEST(UpDown, down_ends_processes_inside_and_only_those) {
  auto lab =
      std::make_unique<Lab>(std::vector<std::string>{"--no-daemons", "--workers", "1", "--aggregators", "0"});
  const std::string name = lab->name();
  const auto start = [&](bool inside) {
    const pid_t pid = fork();
    if (pid == 0) {
      if (inside)
        execl(LabProgram().c_str(), "mlnet-lab", "--name", name.c_str(), "exec", "w1", "--", "sleep", "1000",
              nullptr);
      execlp("sleep", "sleep", "1000", nullptr);
    }
    return pid;
  };
  const pid_t inside = start(true), outside = start(false);
  const auto namespace_of = [](const std::string& path) {
    struct stat info = {};
    stat(path.c_str(), &info);
    return info.st_ino;
  };
  ASSERT_TRUE(WaitFor([&] {
    return namespace_of("/proc/" + std::to_string(inside) + "/ns/net") == namespace_of(lab->Netns("w1"));
  }));
  lab.reset();
  int status = 0;
  EXPECT_EQ(waitpid(inside, &status, 0), inside);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(waitpid(outside, &status, WNOHANG), 0);
  kill(outside, SIGKILL);
  waitpid(outside, &status, 0);
}

TEST(UpDown, down_is_idempotent) {
  const Output down = RunLab({"-j", "--name", FreshName(), "down"});
  EXPECT_EQ(down.exit_code, 0) << down.err;
  EXPECT_EQ(Json::parse(down.out)["existed"], false);
}

TEST(UpDown, two_labs_live_side_by_side) {
  auto first = std::make_unique<Lab>(std::vector<std::string>{"--no-daemons", "--workers", "2"});
  const Lab second({"--no-daemons", "--workers", "2"});
  const auto exchange = [](const Lab& lab) {
    Receiver receiver(lab.Netns("w2"), 9000);
    SendPaced(lab.Netns("w1"), lab.Address("w2"), 9000, 3, [&] { return receiver.count(); });
    return receiver.Stop().size();
  };
  EXPECT_EQ(first->Address("w1"), second.Address("w1"));
  EXPECT_EQ(exchange(*first), 3u);
  EXPECT_EQ(exchange(second), 3u);
  first.reset();
  EXPECT_EQ(exchange(second), 3u);
}

// The names of one lab are a prefix of the other's.
TEST(UpDown, down_spares_a_lab_with_a_longer_name) {
  const std::string shorter = FreshName(), longer = shorter + "_x";
  for (const auto& name : {shorter, longer}) {
    ASSERT_EQ(RunLab({"-j", "--name", name, "up", "--no-daemons", "--workers", "1"}).exit_code, 0);
  }
  EXPECT_EQ(RunLab({"--name", shorter, "down"}).exit_code, 0);
  EXPECT_EQ(EntriesOf("/run/netns", longer).size(), 3u);
  EXPECT_EQ(RunLab({"--name", longer, "down"}).exit_code, 0);
  EXPECT_THAT(TracesOf(shorter), IsEmpty());
}

TEST(UpDown, daemon_that_ends_at_start_fails_the_whole_lab_and_shows_its_log) {
  const FakeDaemon fake("echo 'the dog ate my map' >&2; exit 1");
  const std::string name = FreshName();
  const Output up = RunProgram({fake.lab(), "--name", name, "up"});
  EXPECT_EQ(up.exit_code, 3);
  EXPECT_THAT(up.err, HasSubstr("mlnetd of host w1 ended at start"));
  EXPECT_THAT(up.err, HasSubstr("the dog ate my map"));
  EXPECT_THAT(up.err, HasSubstr("/run/mlnet-lab/" + name + ".failed"));
  EXPECT_TRUE(fs::exists("/run/mlnet-lab/" + name + ".failed/w1.log"));
  EXPECT_THAT(EntriesOf("/run/netns", name), IsEmpty());
  EXPECT_EQ(RunLab({"--name", name, "down"}).exit_code, 0);
  EXPECT_THAT(TracesOf(name), IsEmpty());
}

// A crash while the daemons start: they live, the lab's own process does not.
TEST(UpDown, down_removes_what_a_killed_up_left) {
  const FakeDaemon fake("exec sleep 1000");
  const std::string name = FreshName();
  const pid_t up = fork();
  if (up == 0) {
    // The output would end in the pipe of whoever runs this test.
    dup2(open("/dev/null", O_WRONLY), 2);
    execl(fake.lab().c_str(), "mlnet-lab", "--name", name.c_str(), "up", nullptr);
  }
  ASSERT_TRUE(WaitFor([&] { return fs::exists("/run/mlnet-lab/" + name + "/a1/mlnetd.pid"); }));
  kill(up, SIGKILL);
  waitpid(up, nullptr, 0);
  EXPECT_THAT(RunLab({"--name", name, "exec", "w1", "--", "true"}).err, HasSubstr("is not up"));
  EXPECT_THAT(RunLab({"--name", name, "up", "--no-daemons"}).err, HasSubstr("exists"));
  const Output down = RunLab({"--name", name, "down"});
  EXPECT_EQ(down.exit_code, 0) << down.err;
  EXPECT_THAT(TracesOf(name), IsEmpty());
}

// As early as it gets: killed while the namespaces are being made.
TEST(UpDown, down_removes_what_was_left_at_any_step) {
  for (const char* step : {"/run/mlnet-lab/{}/lock", "/run/netns/ml-{}-switch", "/run/netns/ml-{}-w8"}) {
    const std::string name = FreshName();
    std::string path = step;
    path.replace(path.find("{}"), 2, name);
    const pid_t up = fork();
    if (up == 0) {
      dup2(open("/dev/null", O_WRONLY), 1);
      dup2(open("/dev/null", O_WRONLY), 2);
      execl(LabProgram().c_str(), "mlnet-lab", "--name", name.c_str(), "up", "--no-daemons", "--workers",
            "16", nullptr);
    }
    ASSERT_TRUE(WaitFor([&] { return fs::exists(path); })) << path;
    kill(up, SIGKILL);
    waitpid(up, nullptr, 0);
    // A program that the killed process ran (ip, tc) may still be at work.
    const Output down = RunLab({"--name", name, "down"});
    EXPECT_EQ(down.exit_code, 0) << down.err;
    EXPECT_THAT(TracesOf(name), IsEmpty()) << "killed at " << path;
  }
}

TEST(UpDown, interrupt_cleans_up) {
  const FakeDaemon fake("exec sleep 1000");
  const std::string name = FreshName();
  const pid_t up = fork();
  if (up == 0) {
    dup2(open("/dev/null", O_WRONLY), 2);
    execl(fake.lab().c_str(), "mlnet-lab", "--name", name.c_str(), "up", nullptr);
  }
  ASSERT_TRUE(WaitFor([&] { return fs::exists("/run/mlnet-lab/" + name + "/a1/mlnetd.pid"); }));
  kill(up, SIGINT);
  int status = 0;
  waitpid(up, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
  EXPECT_EQ(RunLab({"--name", name, "down"}).exit_code, 0);
  EXPECT_THAT(TracesOf(name), IsEmpty());
}

}  // namespace
}  // namespace mlnet::lab_test
