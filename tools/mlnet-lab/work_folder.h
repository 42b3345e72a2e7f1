// SPDX-License-Identifier: Apache-2.0
// Where a measurement keeps its turns' files, and what makes it the only one in its lab.
#pragma once

#include <filesystem>
#include <string>

#include "base/fd.h"
#include "state.h"

namespace mlnet::lab {

/// One measurement at a time in a lab, whatever its kind; the folder is removed when it ends.
class WorkFolder {
 public:
  static Result<WorkFolder> Create(const Paths& paths, const std::string& name);
  WorkFolder(WorkFolder&&) = default;
  ~WorkFolder() {
    if (lock_) Clear();
  }

  void Clear() const;
  /// An empty folder for a turn; those of the turns before are removed, with the memory that they were.
  Result<std::string> NewTurn(int number) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  WorkFolder(Fd lock, std::filesystem::path path) : lock_(std::move(lock)), path_(std::move(path)) {}

  Fd lock_;
  std::filesystem::path path_;
};

}  // namespace mlnet::lab
