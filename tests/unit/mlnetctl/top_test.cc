// SPDX-License-Identifier: Apache-2.0
// stats --levels, and top: as lines of text, as JSON, and on a terminal.
#include <gmock/gmock.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <regex>

#include "base/fd.h"
#include "unit/mlnetctl/command_fixture.h"

namespace mlnet::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

Json Node(const char* host, int children, int in, int out, const Json& slowest) {
  return {{"host", host},         {"children", children}, {"packets_in", in}, {"packets_out", out}, {"reduction", 1.0 * in / out},
          {"resends", 2},         {"held", 0},            {"lag_us", slowest.is_null() ? Json(nullptr) : Json(1.25)},
          {"slowest", slowest}};
}

Json Levels() {
  Json host_level = Node("", 0, 80, 20, {{"child", "rank 3"}, {"at", "h1"}, {"lag_us", 7.5}});
  host_level["level"] = 1;
  host_level["nodes"] = {Node("h1", 4, 40, 10, {{"child", "rank 3"}, {"at", "h1"}, {"lag_us", 7.5}}), Node("h2", 4, 40, 10, nullptr)};
  Json root_level = Node("", 0, 20, 10, {{"child", "host h2"}, {"at", "a1"}, {"lag_us", 100.0}});
  root_level["level"] = 0;
  root_level["nodes"] = {Node("a1", 2, 20, 10, {{"child", "host h2"}, {"at", "a1"}, {"lag_us", 100.0}})};
  return {{"schema", "mlnet.levels/1"},
          {"name", "demo"},
          {"state", "ready"},
          {"ranks", {{"ranks", 8}, {"packets_out", 80}, {"packets_in", 79}, {"resends", 5}}},
          {"trees", {{{"tree", 0}, {"weight", 1}, {"levels", {host_level, root_level}}}}}};
}

TEST_F(Command, StatsByLevelGoesFromTheRanksToTheRoot) {
  EXPECT_EQ(RunWith("job.levels", Levels(), {"stats", "demo", "--levels"}), 0);
  EXPECT_EQ(out_,
            "TREE  LEVEL  NODE   CHILDREN  IN  OUT  REDUCTION  RESENDS  LAG us  SLOWEST CHILD\n"
            "      ranks  all 8            79   80          -        5       -  -\n"
            "0     1      all 2            80   20       4.00        2     1.2  rank 3 (7.5 us)\n"
            "0     1      h1            4  40   10       4.00        2     1.2  rank 3 (7.5 us)\n"
            "0     1      h2            4  40   10       4.00        2       -  -\n"
            "0     root   a1            2  20   10       2.00        2     1.2  host h2 (100.0 us)\n");
  EXPECT_THAT(daemon_.requests(), ElementsAre(R"(job.levels {"name":"demo"})"));
}

TEST_F(Command, StatsByLevelOfOneTreeShowsEveryChild) {
  Json levels = Levels();
  levels["trees"][0]["levels"][1]["nodes"][0]["lag"] = {{{"child", "host h1"}, {"samples", 5}, {"mean_us", 0.0}},
                                                        {{"child", "host h2"}, {"samples", 6}, {"mean_us", 100.0}}};
  EXPECT_EQ(RunWith("job.levels", levels, {"stats", "demo", "--levels", "--tree", "0"}), 0);
  EXPECT_THAT(out_, EndsWith("\n\nTREE  NODE  CHILD    SAMPLES  LAG us\n"
                             "0     a1    host h1        5     0.0\n"
                             "0     a1    host h2        6   100.0\n"));
  EXPECT_THAT(daemon_.requests(), ElementsAre(R"(job.levels {"name":"demo","tree":0})"));
}

TEST_F(Command, StatsByLevelIsTheDaemonsObjectInJson) {
  EXPECT_EQ(RunWith("job.levels", Levels(), {"-j", "stats", "demo", "--levels"}), 0);
  EXPECT_EQ(Json::parse(out_), Levels());
}

TEST_F(Command, StatsByLevelNeedsAJob) {
  daemon_.Start();
  EXPECT_EQ(Run({"stats", "--levels"}), 2);
  EXPECT_EQ(Run({"stats", "demo", "--tree", "0"}), 2);
  EXPECT_EQ(Run({"stats", "demo", "--levels", "-i", "1"}), 2);
}

TEST_F(Command, StatsByLevelBeforeThereIsAPlanSaysSo) {
  Json levels = Levels();
  levels["state"] = "joining";
  levels["trees"] = Json::array();
  EXPECT_EQ(RunWith("job.levels", levels, {"stats", "demo", "--levels"}), 0);
  EXPECT_EQ(out_, "");
  EXPECT_EQ(err_, "job demo is joining: it has no trees yet\n");
}

// Each call: 400 packets more in, 100 more out.
FakeDaemon::Answer BusyJob() {
  auto calls = std::make_shared<uint64_t>(0);
  return [calls](const Json&) -> Result<Json> {
    const uint64_t n = ++*calls;
    return Json{{"schema", "mlnet.top/1"},
                {"jobs",
                 {{{"name", "demo"},
                   {"incarnation", 7},
                   {"state", "ready"},
                   {"joined", 8},
                   {"world_size", 8},
                   {"bytes_summed", 1'000'000 * n},
                   {"packets_in", 400 * n},
                   {"packets_out", 100 * n},
                   {"resends", 3},
                   {"slowest", {{"child", "rank 3"}, {"at", "h1"}, {"lag_us", 7.6}}}},
                  {{"name", "idle"}, {"incarnation", n}, {"state", "joining"}, {"joined", 1}, {"world_size", 4}, {"packets_in", n}, {"slowest", nullptr}}}}};
  };
}

TEST_F(Command, TopPrintsOnceWithRates) {
  EXPECT_EQ(RunWith("top", BusyJob(), {"top", "-n", "1", "-i", "0.02"}), 0);
  EXPECT_THAT(out_, HasSubstr("JOB   STATE    RANKS  SUMMED Gb/s"));
  EXPECT_TRUE(std::regex_search(out_, std::regex(R"(\ndemo  ready      8/8 +0\.[0-9]{3} +[1-9][0-9]* +[1-9][0-9]* +4\.00 +0\.0  rank 3 at h1, 8 us\n)")))
      << out_;
  EXPECT_TRUE(std::regex_search(out_, std::regex(R"(\nidle  joining    1/4 +- +- +- +- +-  -\n$)"))) << "another life each time\n" << out_;
  EXPECT_THAT(daemon_.requests(), ElementsAre(R"(top {"all":false})", R"(top {"all":false})"));
  EXPECT_THAT(out_, Not(HasSubstr("\033")));
}

TEST_F(Command, TopRepeatsAsJsonLines) {
  EXPECT_EQ(RunWith("top", BusyJob(), {"top", "-j", "-a", "-n", "3", "-i", "0.01"}), 0);
  std::istringstream lines(out_);
  uint64_t seen = 0;
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(Json::parse(line)["jobs"][0]["packets_out"], 100 * ++seen);
  EXPECT_EQ(seen, 3u);
  EXPECT_EQ(daemon_.requests().front(), R"(top {"all":true})");
}

TEST_F(Command, TopWithoutJobsSaysHowOneAppears) {
  EXPECT_EQ(RunWith("top", Json{{"schema", "mlnet.top/1"}, {"jobs", Json::array()}}, {"top", "-n", "1", "-i", "0.01"}), 0);
  EXPECT_EQ(out_, "no jobs; a job appears when its first rank joins\n");
}

TEST_F(Command, TopWithoutADaemonIsAnError) { EXPECT_EQ(Run({"top"}), 3); }

/// `mlnetctl top` on a terminal of its own.
class TopOnTerminal : public Command {
 protected:
  void SetUp() override {
    daemon_.On("top", BusyJob());
    daemon_.Start();
    const std::string socket = daemon_.socket();
    int terminal = -1;
    pid_ = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      ::execl(MLNETCTL_BINARY, "mlnetctl", "--socket", socket.c_str(), "--color", "never", "top", "-i", "0.05", nullptr);
      ::_exit(127);
    }
    terminal_ = Fd(terminal);
  }
  void TearDown() override {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
  }
  /// Reads until `words` were shown so many times, or the other side has closed.
  bool ReadUntil(const std::string& words, int times = 1) {
    for (;;) {
      int found = 0;
      for (size_t at = shown_.find(words); at != std::string::npos; at = shown_.find(words, at + 1)) ++found;
      if (found >= times) return true;
      pollfd p{terminal_.get(), POLLIN, 0};
      char bytes[4096];
      if (::poll(&p, 1, 20'000) <= 0) return false;
      const ssize_t n = ::read(terminal_.get(), bytes, sizeof(bytes));
      if (n <= 0) return false;
      shown_.append(bytes, static_cast<size_t>(n));
    }
  }
  void Press(char key) { EXPECT_EQ(::write(terminal_.get(), &key, 1), 1); }
  int ExitCode() {
    int status = 0;
    ReadUntil("nothing that is shown");
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  static constexpr const char* kLeft = "\033[?25h\033[?1049l";  // cursor and first screen are back
  pid_t pid_ = -1;
  Fd terminal_;
  std::string shown_;
};

TEST_F(TopOnTerminal, it_refreshes_until_q) {
  ASSERT_TRUE(ReadUntil("q: leave", 3)) << shown_;
  EXPECT_THAT(shown_, HasSubstr("4.00"));
  Press('x');
  Press('q');
  EXPECT_EQ(ExitCode(), 0);
  EXPECT_THAT(shown_, EndsWith(kLeft));
}

TEST_F(TopOnTerminal, control_c_ends_it_in_order) {
  ASSERT_TRUE(ReadUntil("q: leave")) << shown_;
  termios now;
  ASSERT_EQ(::tcgetattr(terminal_.get(), &now), 0);
  EXPECT_EQ(now.c_lflag & ECHO, 0u);
  Press(3);
  EXPECT_EQ(ExitCode(), 0);
  EXPECT_THAT(shown_, EndsWith(kLeft));
}

}  // namespace
}  // namespace mlnet::ctl
