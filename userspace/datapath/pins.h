// SPDX-License-Identifier: Apache-2.0
// <pin_root>/<instance>/v<ABI>: the pins of one daemon. Its lock tells whether a daemon lives there.
#pragma once

#include <string>

#include "base/fd.h"
#include "mlnet/error.h"

namespace mlnet::datapath {

class PinFolder {
 public:
  /// Takes the instance's folder and removes what a dead daemon left in it. kConflict when one is alive.
  static Result<PinFolder> Take(const std::string& pin_root, const std::string& instance);
  PinFolder(PinFolder&&) noexcept = default;
  PinFolder& operator=(PinFolder&&) = delete;
  ~PinFolder();  // as Remove(false), unless that was called

  const std::string& path() const { return path_; }  // with the ABI's version
  /// Removes pins and folder; `keep_links`: the links' pins stay, and the programs stay attached.
  void Remove(bool keep_links);

 private:
  PinFolder() = default;
  std::string instance_path_;
  std::string path_;
  Fd lock_;
};

}  // namespace mlnet::datapath
