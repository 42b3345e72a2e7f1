// SPDX-License-Identifier: Apache-2.0
#include "teardown.h"

#include <fmt/format.h>

#include "base/errno_error.h"
#include "hysteresis.h"
#include "netns.h"
#include "process.h"

namespace mlnet::lab {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// Every PID file below the lab's folder.
std::vector<ProcessId> Daemons(const Paths& paths) {
  std::vector<ProcessId> out;
  std::error_code ec;
  for (const auto& entry : fs::recursive_directory_iterator(paths.Dir(), ec)) {
    if (entry.path().extension() != ".pid") continue;
    if (const auto id = ReadPidfile(entry.path())) out.push_back(*id);
  }
  return out;
}

// mlnetd's pins of this lab's hosts: LAB-HOST. A host name has no '-', so LAB cannot be a part of another
// name.
std::vector<fs::path> PinDirs(const Paths& paths) {
  std::vector<fs::path> out;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(Paths::kPinRoot, ec)) {
    if (entry.path().filename().string().starts_with(paths.Instance(""))) out.push_back(entry.path());
  }
  if (fs::exists(paths.FaultPins(), ec)) out.push_back(paths.FaultPins());
  return out;
}

}  // namespace

bool AnythingLeft(const Paths& paths) {
  std::error_code ec;
  return fs::exists(paths.Dir(), ec) || !ListNetns(paths).empty() || !PinDirs(paths).empty();
}

Result<void> TearDown(const Paths& paths) {
  Result<void> result;
  EndProcesses(Daemons(paths), milliseconds{3000});
  EndProcesses(ProcessesInside(paths), milliseconds{1000});
  if (auto r = DeleteNetns(ListNetns(paths)); !r) result = r;
  auto dirs = PinDirs(paths);
  dirs.push_back(paths.Dir());
  for (const auto& dir : dirs) {
    std::error_code ec;
    fs::remove_all(dir, ec);
    if (ec && result) result = tl::make_unexpected(ErrnoError("remove " + dir.string(), ec.value()));
  }
  ReturnHysteresis();
  return result;
}

}  // namespace mlnet::lab
