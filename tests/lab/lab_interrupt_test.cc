// SPDX-License-Identifier: Apache-2.0
// A measurement that is interrupted says so, and leaves neither ranks nor jobs behind.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "lab/lab_fixture.h"

namespace mlnet::lab_test {
namespace {

struct Measurement {
  std::vector<std::string> args;
  std::string program;  // of its ranks
};

std::ostream& operator<<(std::ostream& out, const Measurement& m) { return out << m.args.front(); }

class Interrupted : public testing::TestWithParam<Measurement> {};

size_t NumRunning(const Lab& lab, const std::string& program) {
  size_t count = 0;
  const Output pids = RunProgram({"ip", "netns", "pids", "ml-" + lab.name() + "-w1"});
  std::istringstream list(pids.out);
  for (std::string pid; list >> pid;) {
    std::ifstream file("/proc/" + pid + "/cmdline");
    std::string first;
    std::getline(file, first, '\0');
    count += first.ends_with("/" + program);
  }
  return count;
}

std::string Jobs(const Lab& lab) {
  return lab.Exec("w1", {(LabProgram().parent_path() / "mlnetctl").string(), "-j", "job", "list"}).out;
}

TEST_P(Interrupted, measurement_leaves_nothing_behind) {
  const Lab lab({"--workers", "2", "--aggregators", "1", "--rate", "20mbit", "--agg-rate", "20mbit"});
  const Measurement& measurement = GetParam();
  std::vector<std::string> argv{LabProgram().string(), "--name", lab.name()};
  argv.insert(argv.end(), measurement.args.begin(), measurement.args.end());
  const pid_t pid = fork();
  if (pid == 0) {
    std::vector<char*> args;
    for (std::string& arg : argv) args.push_back(arg.data());
    args.push_back(nullptr);
    execv(args[0], args.data());
    _exit(127);
  }
  EXPECT_TRUE(WaitFor([&] { return NumRunning(lab, measurement.program) > 0; }));
  kill(pid, SIGTERM);
  int status = -1;
  EXPECT_TRUE(WaitFor([&] { return waitpid(pid, &status, WNOHANG) == pid; }));
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_EQ(NumRunning(lab, measurement.program), 0u);
  EXPECT_EQ(Json::parse(Jobs(lab))["jobs"], Json::array()) << Jobs(lab);
}

INSTANTIATE_TEST_SUITE_P(Lab, Interrupted,
                         testing::Values(Measurement{{"perf", "--sizes", "64M", "--shape", "star"}, "mlnet-perf-rank"},
                                         Measurement{{"jobs", "--count", "2", "--bytes", "64M"}, "mlnet-perf-job"},
                                         Measurement{{"layers", "--scale", "1"}, "mlnet-perf-layers"},
                                         Measurement{{"urgent", "--backlog", "64M"}, "mlnet-perf-urgent"}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace mlnet::lab_test
