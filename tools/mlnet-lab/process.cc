// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "base/errno_error.h"
#include "base/fd.h"

namespace mlnet::lab {
namespace {

std::vector<char*> ToArgv(const std::vector<std::string>& argv) {
  std::vector<char*> out;
  for (const auto& arg : argv) out.push_back(const_cast<char*>(arg.c_str()));
  out.push_back(nullptr);
  return out;
}

Fd TemporaryFile(const std::string& content) {
  Fd fd(static_cast<int>(syscall(SYS_memfd_create, "mlnet-lab", 0)));
  if (fd && !content.empty()) {
    if (write(fd.get(), content.data(), content.size()) < 0) return Fd();
    lseek(fd.get(), 0, SEEK_SET);
  }
  return fd;
}

std::string ReadAll(int fd) {
  std::string out;
  char buffer[4096];
  lseek(fd, 0, SEEK_SET);
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) out.append(buffer, static_cast<size_t>(n));
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

Fd OpenProcess(const ProcessId& id) {
  Fd fd(static_cast<int>(syscall(SYS_pidfd_open, id.pid, 0)));
  // Checked after the open: from here on the descriptor means this very process.
  return fd && IsAlive(id) ? std::move(fd) : Fd();
}

// In the child, between fork and exec.
[[noreturn]] void ExecDaemon(const std::vector<std::string>& argv, int netns, int log, int gate) {
  char go = 0;
  const bool started = read(gate, &go, 1) == 1;  // the parent writes the pidfile first
  if (!started || setns(netns, CLONE_NEWNET) != 0) _exit(126);
  setsid();
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, 0);
  dup2(log, 1);
  dup2(log, 2);
  close_range(3, ~0U, 0);  // above all the lab's lock
  execvp(argv[0].c_str(), ToArgv(argv).data());
  const std::string text = fmt::format("{}: {}\n", argv[0], std::strerror(errno));
  if (write(2, text.data(), text.size()) < 0) _exit(125);
  _exit(127);
}

}  // namespace

Result<std::string> Run(const std::vector<std::string>& argv, const std::string& input) {
  const Fd in = TemporaryFile(input), out = TemporaryFile(""), err = TemporaryFile("");
  if (!in || !out || !err) return tl::make_unexpected(ErrnoError("memfd_create", errno));
  const pid_t pid = fork();
  if (pid < 0) return tl::make_unexpected(ErrnoError("fork", errno));
  if (pid == 0) {
    dup2(in.get(), 0);
    dup2(out.get(), 1);
    dup2(err.get(), 2);
    execvp(argv[0].c_str(), ToArgv(argv).data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return ReadAll(out.get());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    return Err(ErrorCode::kUnavailable, fmt::format("cannot run '{}'", argv[0]),
               "install iproute2 and ethtool");
  }
  return Err(ErrorCode::kSystem, fmt::format("{}: {}", fmt::join(argv, " "), ReadAll(err.get())));
}

std::optional<ProcessId> IdentifyProcess(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The command name, field 2, may hold blanks and parentheses: count from its last ')'.
  std::istringstream rest(line.substr(line.rfind(')') + 1));
  std::string field, state;
  uint64_t start_time = 0;
  rest >> state;
  for (int i = 4; i <= 21; ++i) rest >> field;
  if (!(rest >> start_time) || state == "Z" || state == "X") return std::nullopt;
  return ProcessId{pid, start_time};
}

bool IsAlive(const ProcessId& id) {
  const auto now = IdentifyProcess(id.pid);
  return now && now->start_time == id.start_time;
}

Result<ProcessId> StartDaemon(const std::vector<std::string>& argv, const std::string& netns,
                              const std::string& log_path, const std::string& pidfile) {
  const Fd ns(open(netns.c_str(), O_RDONLY | O_CLOEXEC));
  if (!ns) return tl::make_unexpected(ErrnoError("open " + netns, errno));
  const Fd log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log) return tl::make_unexpected(ErrnoError("open " + log_path, errno));
  int gate[2];
  if (pipe2(gate, O_CLOEXEC) != 0) return tl::make_unexpected(ErrnoError("pipe", errno));
  Fd gate_read(gate[0]), gate_write(gate[1]);
  const pid_t pid = fork();
  if (pid < 0) return tl::make_unexpected(ErrnoError("fork", errno));
  if (pid == 0) {
    gate_write.Reset();
    ExecDaemon(argv, ns.get(), log.get(), gate_read.get());
  }
  const auto id = IdentifyProcess(pid);
  if (!id) return Err(ErrorCode::kSystem, fmt::format("{} ended at once", argv[0]));
  std::ofstream file(pidfile, std::ios::trunc);
  file << id->pid << ' ' << id->start_time << '\n';
  file.close();
  if (!file || write(gate_write.get(), "g", 1) != 1) {
    gate_write.Reset();
    return tl::make_unexpected(ErrnoError("write " + pidfile, errno));
  }
  return *id;
}

std::optional<ProcessId> ReadPidfile(const std::string& pidfile) {
  std::ifstream file(pidfile);
  ProcessId id;
  if (!(file >> id.pid >> id.start_time) || !IsAlive(id)) return std::nullopt;
  return id;
}

void EndProcesses(const std::vector<ProcessId>& ids, std::chrono::milliseconds grace) {
  std::vector<Fd> open;
  for (const auto& id : ids) {
    if (Fd fd = OpenProcess(id); fd) open.push_back(std::move(fd));
  }
  for (const auto& fd : open) syscall(SYS_pidfd_send_signal, fd.get(), SIGTERM, nullptr, 0);
  const auto deadline = std::chrono::steady_clock::now() + grace;
  for (const auto& fd : open) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd wait{fd.get(), POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) > 0) continue;
    syscall(SYS_pidfd_send_signal, fd.get(), SIGKILL, nullptr, 0);
    poll(&wait, 1, -1);
  }
  while (waitpid(-1, nullptr, WNOHANG) > 0) {  // those that were our own children
  }
}

}  // namespace mlnet::lab
