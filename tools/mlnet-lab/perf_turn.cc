// SPDX-License-Identifier: Apache-2.0
#include "perf_turn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "base/errno_error.h"
#include "base/read_file.h"
#include "daemons.h"
#include "mlnet-perf/shared_area.h"
#include "perf_mpi.h"

namespace mlnet::lab {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{5};
constexpr std::chrono::seconds kGrace{3};  // for the other ranks to say their part, and to end
constexpr size_t kStderrMax = 2000;

struct Child {
  pid_t pid = 0;
  std::string name;  // "rank 3 on w2"
  std::string log;
  int status = 0;
  bool is_running = true;

  bool HasFailed() const { return !is_running && status != 0; }
};

struct Command {
  std::string name;
  std::string host;
  std::string log;
  std::vector<std::string> argv;
  bool own_hostname = false;  // give the process a host name of its own: the host's
};

// In the child, between fork and exec.
[[noreturn]] void BecomeRank(const Command& command, const Paths& paths, pid_t parent, int netns, int log) {
  // SIGTERM, not SIGKILL: mpirun ends its ranks on it. It goes out when the parent's thread dies.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent || setns(netns, CLONE_NEWNET) != 0) _exit(126);
  if (command.own_hostname) {
    if (unshare(CLONE_NEWUTS) != 0 || sethostname(command.host.data(), command.host.size()) != 0) _exit(126);
  }
  setpgid(0, 0);  // Ctrl-C is for the parent, which ends its children in order
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  setenv("MLNET_SOCKET", paths.Socket(command.host).c_str(), 1);
  std::vector<char*> argv;
  for (const auto& arg : command.argv) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(127);
}

Result<Child> Start(const Paths& paths, const Command& command) {
  const Fd netns(open(paths.NetnsFile(command.host).c_str(), O_RDONLY | O_CLOEXEC));
  if (!netns) return tl::make_unexpected(ErrnoError("open " + paths.NetnsFile(command.host), errno));
  const Fd log(open(command.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!log) return tl::make_unexpected(ErrnoError("open " + command.log, errno));
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return tl::make_unexpected(ErrnoError("fork", errno));
  if (pid == 0) BecomeRank(command, paths, parent, netns.get(), log.get());
  return Child{pid, command.name, command.log};
}

void Reap(std::vector<Child>& children) {
  for (Child& child : children) {
    if (child.is_running && waitpid(child.pid, &child.status, WNOHANG) == child.pid) child.is_running = false;
  }
}

bool AnyRunning(const std::vector<Child>& children) {
  return std::any_of(children.begin(), children.end(), [](const Child& child) { return child.is_running; });
}

bool AnyFailed(const std::vector<Child>& children) {
  return std::any_of(children.begin(), children.end(), [](const Child& child) { return child.HasFailed(); });
}

/// Until all have ended, or `done` says to give up, or the deadline. False in the last two cases.
template <typename Done>
bool WaitAll(std::vector<Child>& children, steady_clock::time_point deadline, Done done) {
  for (;;) {
    Reap(children);
    if (!AnyRunning(children)) return true;
    if (done() || steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
}

void EndAll(std::vector<Child>& children) {
  const auto signal_all = [&](int signal) {
    for (const Child& child : children) {
      if (child.is_running) kill(child.pid, signal);
    }
  };
  const auto never = [] { return false; };
  signal_all(SIGTERM);
  if (WaitAll(children, steady_clock::now() + kGrace, never)) return;
  signal_all(SIGKILL);
  WaitAll(children, steady_clock::time_point::max(), never);
}

std::string TailOf(const std::string& file) {
  std::string text = ReadFile(file).value_or("");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.size() > kStderrMax ? "..." + text.substr(text.size() - kStderrMax) : text;
}

std::string HowItEnded(const Child& child) {
  if (WIFSIGNALED(child.status)) return fmt::format("ended by signal {}", WTERMSIG(child.status));
  return fmt::format("exit code {}", WEXITSTATUS(child.status));
}

/// What the ranks said: the first rank's own error decides code and hint.
Error ErrorOfTurn(const Turn& turn, const std::vector<Child>& children, Error error) {
  for (int rank = 0; rank < turn.spec.world_size; ++rank) {
    const auto rows = perf::LoadRows(turn.spec.ResultFile(rank));
    // A rank that reports LOST only saw another one go: any other reason tells more.
    if (rows || rows.error().code == ErrorCode::kSystem || rows.error().code == ErrorCode::kRankLost)
      continue;
    error.code = rows.error().code;
    error.hint = rows.error().hint;
    break;
  }
  for (const Child& child : children) {
    const std::string said = TailOf(child.log);
    if (!child.HasFailed() && said.empty()) continue;
    error.message +=
        fmt::format("\n  {} ({}): {}", child.name, HowItEnded(child), said.empty() ? "said nothing" : said);
  }
  return error;
}

Result<std::vector<Command>> CommandsOf(const Paths& paths, const Turn& turn) {
  const auto program = FindRankProgram(turn.backend);
  if (!program) return tl::make_unexpected(program.error());
  if (turn.backend == "mpi") {
    const auto argv = MpirunCommand(paths, turn, *program);
    if (!argv) return tl::make_unexpected(argv.error());
    const std::string& host = turn.hosts.front().name;
    return std::vector<Command>{{"mpirun on " + host, host, turn.spec.dir + "/mpirun.log", *argv, true}};
  }
  std::vector<Command> commands;
  for (int rank = 0; rank < turn.spec.world_size; ++rank) {
    const std::string& host = turn.hosts[static_cast<size_t>(rank / turn.spec.ranks_per_host)].name;
    commands.push_back({fmt::format("rank {} on {}", rank, host),
                        host,
                        fmt::format("{}/rank-{}.log", turn.spec.dir, rank),
                        {*program, turn.spec.File(), std::to_string(rank)},
                        false});
  }
  return commands;
}

// A job that was declared stays declared when its ranks have left.
class DeclaredJob {
 public:
  static Result<DeclaredJob> Create(const Paths& paths, const Turn& turn) {
    DeclaredJob job(paths, turn);
    if (turn.declared.empty()) return job;
    Json params = turn.declared;
    params.update({{"name", turn.spec.job}, {"world_size", turn.spec.world_size}});
    if (auto made = CallDaemon(paths, turn.hosts.front(), "job.create", params); !made)
      return tl::make_unexpected(made.error());
    job.is_there_ = true;
    return job;
  }
  DeclaredJob(DeclaredJob&& other) noexcept
      : paths_(other.paths_), turn_(other.turn_), is_there_(std::exchange(other.is_there_, false)) {}
  ~DeclaredJob() {
    // The lab's end removes what cannot be removed now.
    if (is_there_) (void)CallDaemon(paths_, turn_.hosts.front(), "job.delete", {{"name", turn_.spec.job}});
  }

 private:
  DeclaredJob(const Paths& paths, const Turn& turn) : paths_(paths), turn_(turn) {}
  const Paths& paths_;
  const Turn& turn_;
  bool is_there_ = false;
};

}  // namespace

Result<std::vector<std::vector<perf::RankRow>>> RunTurn(const Paths& paths, const Turn& turn,
                                                        const std::atomic<bool>& stop,
                                                        const std::function<void()>& at_checkpoint) {
  if (auto ok = perf::SharedArea::Create(turn.spec.SharedFile(), turn.spec.world_size); !ok) {
    return tl::make_unexpected(ok.error());
  }
  auto area = perf::SharedArea::Open(turn.spec.SharedFile(), turn.spec.world_size);
  if (!area) return tl::make_unexpected(area.error());
  if (auto ok = perf::SaveSpec(turn.spec); !ok) return tl::make_unexpected(ok.error());
  const auto commands = CommandsOf(paths, turn);
  if (!commands) return tl::make_unexpected(commands.error());
  const auto job = DeclaredJob::Create(paths, turn);
  if (!job) return tl::make_unexpected(job.error());
  std::vector<Child> children;
  for (const Command& command : *commands) {
    auto child = Start(paths, command);
    if (!child) {
      EndAll(children);
      return tl::make_unexpected(child.error());
    }
    children.push_back(std::move(*child));
  }
  const auto deadline = steady_clock::now() + std::chrono::seconds(turn.timeout_s);
  const bool all_ended = WaitAll(children, deadline, [&] {
    if (area->IsAsked()) {
      at_checkpoint();
      area->Answer();
    }
    return stop.load() || AnyFailed(children);
  });
  if (stop.load()) {
    EndAll(children);
    return Err(ErrorCode::kCancelled, "interrupted");
  }
  if (all_ended && !AnyFailed(children)) {
    std::vector<std::vector<perf::RankRow>> results;
    for (int rank = 0; rank < turn.spec.world_size; ++rank) {
      auto rows = perf::LoadRows(turn.spec.ResultFile(rank));
      if (!rows) return tl::make_unexpected(rows.error());
      results.push_back(std::move(*rows));
    }
    return results;
  }
  const bool is_late = !all_ended && !AnyFailed(children);
  if (!is_late) WaitAll(children, steady_clock::now() + kGrace, [] { return false; });
  EndAll(children);
  return tl::make_unexpected(ErrorOfTurn(
      turn, children,
      is_late
          ? Error{ErrorCode::kTimeout, fmt::format("{}: not done after {} s", turn.backend, turn.timeout_s),
                  "--timeout gives it longer"}
          : Error{ErrorCode::kSystem, fmt::format("{}: a rank failed", turn.backend), ""}));
}

Result<std::string> FindRankProgram(const std::string& backend) {
  const std::string peer = backend == "gloo-fp16" ? "gloo" : backend;  // one program for both
  const std::string name = backend == "mlnet" ? "mlnet-perf-rank" : "mlnet-perf-" + peer;
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    for (const auto& dir : {self.parent_path(), self.parent_path().parent_path() / "libexec/mlnet"}) {
      if (access((dir / name).c_str(), X_OK) == 0) return (dir / name).string();
    }
  }
  const bool is_peer = peer == "gloo" || peer == "mpi";
  return Err(ErrorCode::kUnsupported, fmt::format("{} is not built", name),
             is_peer ? "configure with -DMLNET_PEERS=ON and build again" : "cmake --build BUILD --target " + name);
}

}  // namespace mlnet::lab
