// SPDX-License-Identifier: Apache-2.0
// The promises to scripts: every exit code, where errors go, and when there is colour.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "unit/mlnetctl/command_fixture.h"

namespace mlnet::ctl {
namespace {

using testing::HasSubstr;

struct CodeCase {
  ErrorCode code;
  int exit_code;
};

class DaemonError : public Command, public testing::WithParamInterface<CodeCase> {};

TEST_P(DaemonError, GivesItsExitCode) {
  const Error error{GetParam().code, "what failed", "what to do"};
  EXPECT_EQ(RunWith("iface.attach", error, {"iface", "attach", "eth0"}), GetParam().exit_code);
  EXPECT_EQ(out_, "");
  EXPECT_EQ(err_,
            std::string("mlnetctl: ") + ErrorCodeName(error.code) + ": what failed\n  try: what to do\n");
}

INSTANTIATE_TEST_SUITE_P(
    All, DaemonError,
    testing::Values(CodeCase{ErrorCode::kInvalidArgument, 2}, CodeCase{ErrorCode::kUnavailable, 1},
                    CodeCase{ErrorCode::kPermission, 4}, CodeCase{ErrorCode::kUnsupported, 5},
                    CodeCase{ErrorCode::kConflict, 6}, CodeCase{ErrorCode::kTimeout, 7},
                    CodeCase{ErrorCode::kMismatch, 1}, CodeCase{ErrorCode::kRankLost, 1},
                    CodeCase{ErrorCode::kProtocol, 1},
                    CodeCase{ErrorCode::kSystem, 1}, CodeCase{ErrorCode::kCancelled, 1}),
    [](const auto& param_info) { return std::string(ErrorCodeName(param_info.param.code)); });

TEST_F(Command, ErrorsInJsonModeAreJsonOnStderr) {
  const Error error{ErrorCode::kConflict, "eth0 carries another program", "detach it"};
  EXPECT_EQ(RunWith("iface.attach", error, {"-j", "iface", "attach", "eth0"}), 6);
  EXPECT_EQ(out_, "");
  EXPECT_EQ(
      Json::parse(err_),
      (Json{{"error",
             {{"code", "E_CONFLICT"}, {"message", "eth0 carries another program"}, {"hint", "detach it"}}}}));
}

TEST_F(Command, NoDaemonExitsWith3) {
  EXPECT_EQ(Run({"iface", "list"}), 3);
  EXPECT_THAT(err_, HasSubstr("E_UNAVAILABLE"));
  EXPECT_THAT(err_, HasSubstr(daemon_.socket()));
  EXPECT_EQ(Run({"status", "-j"}), 3);
  EXPECT_EQ(Json::parse(err_)["error"]["code"], "E_UNAVAILABLE");
}

TEST_F(Command, SilentDaemonExitsWith7) {
  daemon_.Start();
  EXPECT_EQ(Run({"--timeout", "0.05", "job", "list"}), 7);
  EXPECT_THAT(err_, HasSubstr("did not answer 'job.list'"));
}

TEST_F(Command, UsageErrorsExitWith2) {
  EXPECT_EQ(Run({}), 2);
  EXPECT_EQ(Run({"frob"}), 2);
  EXPECT_THAT(err_, HasSubstr("'frob'"));
  EXPECT_EQ(Run({"iface", "attach"}), 2);
  EXPECT_EQ(Run({"iface", "attach", "eth0", "--mode", "fast"}), 2);
  EXPECT_EQ(Run({"job", "create", "x", "-n", "257"}), 2);
  EXPECT_EQ(Run({"-jp", "nothing"}), 2);
  EXPECT_EQ(Json::parse(err_)["error"]["code"], "E_USAGE");
}

TEST_F(Command, HelpDocumentsExitCodesOnStdout) {
  EXPECT_EQ(Run({"--help"}), 0);
  for (const char* line :
       {"3  daemon not reachable", "7  timeout", "8  degraded (status only)", "130, 143"}) {
    EXPECT_THAT(out_, HasSubstr(line));
  }
  EXPECT_EQ(err_, "");
}

TEST_F(Command, PrettyImpliesJson) {
  EXPECT_EQ(RunWith("job.list", Json{{"schema", "mlnet.job.list/1"}, {"jobs", Json::array()}},
                    {"job", "list", "-p"}),
            0);
  EXPECT_EQ(out_, "{\n  \"jobs\": [],\n  \"schema\": \"mlnet.job.list/1\"\n}\n");
}

TEST_F(Command, ColourFollowsTerminalAndEnvironment) {
  daemon_.On("job.list",
             Json{{"schema", "mlnet.job.list/1"}, {"jobs", {{{"name", "demo"}, {"state", "ready"}}}}});
  daemon_.Start();
  const auto has_color = [&](std::vector<std::string> args, const Environment& environment) {
    args.insert(args.begin(), {"--socket", daemon_.socket(), "job", "list"});
    std::ostringstream out, err;
    EXPECT_EQ(RunCli(args, out, err, environment), 0);
    return out.str().find('\033') != std::string::npos;
  };
  EXPECT_FALSE(has_color({}, {}));
  EXPECT_TRUE(has_color({}, {.out_is_terminal = true}));
  EXPECT_FALSE(has_color({}, {.out_is_terminal = true, .no_color = true}));
  EXPECT_TRUE(has_color({"--color", "always"}, {}));
  EXPECT_FALSE(has_color({"--color", "never"}, {.out_is_terminal = true}));
}

class Signal : public Command, public testing::WithParamInterface<int> {};

// A shell reports a program that a signal ended as 128 + signal: 130 and 143. So the program must not catch
// it.
TEST_P(Signal, EndsTheProgram) {
  daemon_.On("stats", Json{{"schema", "mlnet.stats/1"}});
  daemon_.Start();
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe_fds[1], STDOUT_FILENO);
    ::execl(MLNETCTL_BINARY, "mlnetctl", "--socket", daemon_.socket().c_str(), "-j", "stats", "-i", "60",
            nullptr);
    ::_exit(127);
  }
  ::close(pipe_fds[1]);
  char byte;
  ASSERT_EQ(::read(pipe_fds[0], &byte, 1), 1);  // it is running: the first line is out
  ::kill(child, GetParam());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == GetParam()) << status;
  ::close(pipe_fds[0]);
}

INSTANTIATE_TEST_SUITE_P(Both, Signal, testing::Values(SIGINT, SIGTERM));

}  // namespace
}  // namespace mlnet::ctl
