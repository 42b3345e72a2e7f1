// SPDX-License-Identifier: Apache-2.0
#include "netns.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/errno_error.h"

namespace mlnet::lab {
namespace {

namespace fs = std::filesystem;

// This process and those above it: `exec` may have started a shell that now calls `down`.
std::set<pid_t> Ancestors() {
  std::set<pid_t> out;
  for (pid_t pid = getpid(); pid > 1 && out.insert(pid).second;) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string line, state;
    if (!std::getline(file, line)) break;
    std::istringstream(line.substr(line.rfind(')') + 1)) >> state >> pid;
  }
  return out;
}

}  // namespace

Result<void> EnterNetns(const std::string& netns) {
  const Fd fd(open(netns.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return tl::make_unexpected(ErrnoError("open " + netns, errno));
  if (setns(fd.get(), CLONE_NEWNET) != 0) return tl::make_unexpected(ErrnoError("enter " + netns, errno));
  return {};
}

Result<void> InNetns(const std::string& netns, const std::function<Result<void>()>& body) {
  const Fd old(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!old) return tl::make_unexpected(ErrnoError("open /proc/thread-self/ns/net", errno));
  if (auto r = EnterNetns(netns); !r) return r;
  auto result = body();
  if (setns(old.get(), CLONE_NEWNET) != 0) return tl::make_unexpected(ErrnoError("leave " + netns, errno));
  return result;
}

std::vector<std::string> ListNetns(const Paths& paths) {
  std::vector<std::string> names;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator("/run/netns", ec)) {
    if (entry.path().filename().string().starts_with(paths.NetnsPrefix()))
      names.push_back(entry.path().filename());
  }
  return names;
}

std::vector<ProcessId> ProcessesInside(const Paths& paths) {
  std::set<std::pair<dev_t, ino_t>> namespaces;
  struct stat info;
  for (const auto& name : ListNetns(paths)) {
    if (stat(("/run/netns/" + name).c_str(), &info) == 0) namespaces.emplace(info.st_dev, info.st_ino);
  }
  // A name whose mount was never made is a plain file in the host's own tmpfs: no process has such a
  // namespace.
  const auto ours = Ancestors();
  std::vector<ProcessId> out;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator("/proc", ec)) {
    const std::string text = entry.path().filename();
    pid_t pid = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), pid).ptr != text.data() + text.size())
      continue;
    if (ours.contains(pid) || stat((entry.path() / "ns/net").c_str(), &info) != 0) continue;
    if (!namespaces.contains({info.st_dev, info.st_ino})) continue;
    if (const auto id = IdentifyProcess(pid)) out.push_back(*id);
  }
  return out;
}

Result<void> DeleteNetns(const std::vector<std::string>& names) {
  Result<void> result;
  for (const auto& name : names) {
    const std::string path = "/run/netns/" + name;
    // EINVAL: not a mount point, left by an `up` that was killed between the two steps.
    while (umount2(path.c_str(), MNT_DETACH) == 0) {
    }
    if (unlink(path.c_str()) != 0 && errno != ENOENT)
      result = tl::make_unexpected(ErrnoError("remove " + path, errno));
  }
  return result;
}

}  // namespace mlnet::lab
