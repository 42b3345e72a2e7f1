// SPDX-License-Identifier: Apache-2.0
#include "work_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include "base/errno_error.h"

namespace mlnet::lab {

Result<WorkFolder> WorkFolder::Create(const Paths& paths, const std::string& name) {
  const auto lock_file = paths.Dir() / "perf.lock";
  Fd lock(open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return tl::make_unexpected(ErrnoError("open " + lock_file.string(), errno));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Err(ErrorCode::kConflict, fmt::format("another measurement is at work in lab '{}'", paths.lab), "wait for its end");
  }
  return WorkFolder(std::move(lock), paths.Dir() / name);
}

void WorkFolder::Clear() const {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Result<std::string> WorkFolder::NewTurn(int number) const {
  const auto dir = path_ / std::to_string(number);
  std::error_code error;
  Clear();
  std::filesystem::create_directories(dir / "store", error);
  if (error) return tl::make_unexpected(ErrnoError("create " + dir.string(), error.value()));
  return dir.string();
}

}  // namespace mlnet::lab
