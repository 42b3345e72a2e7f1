// SPDX-License-Identifier: Apache-2.0
// <pin_root>/<instance>/v<ABI>: the pins of one daemon. Its lock tells whether a daemon lives there.
//   maps/NAME        maps that all jobs share
//   inner/NAME/KEY   the map that is at KEY of the map of maps NAME: a job's
//   progs/NAME       programs, for bpftool
//   links/DEVICE     by which the XDP program is attached; tags/DEVICE: the tc program
// Names are as PinName has them.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "mlnet/error.h"

namespace mlnet::datapath {

/// How `name` (of an instance, of an interface) is called in a BPF file system, which takes no dots: a colon stands for each, and is
/// in no such name itself.
std::string PinName(std::string name);

class PinFolder {
 public:
  /// Takes the instance's folder, with what an earlier daemon left in it. kConflict when one is alive.
  static Result<PinFolder> Take(const std::string& pin_root, const std::string& instance);
  PinFolder(PinFolder&&) noexcept = default;
  PinFolder& operator=(PinFolder&&) = delete;
  ~PinFolder();  // as Remove(false), unless that was called, or what is there is still an earlier daemon's

  const std::string& path() const { return path_; }  // with the ABI's version
  /// Whether an earlier daemon left maps of this build's layout.
  bool HasMaps() const;
  /// Other layouts that something is pinned under: "v3".
  std::vector<std::string> OtherLayouts() const;
  /// Removes what an earlier daemon left, of whatever layout; what is pinned from here on is this daemon's.
  Result<void> Clear();
  /// What an earlier daemon left in this layout is this daemon's from here on; other layouts go.
  void TakeOver();
  /// Removes pins and folder; `keep_links`: the links' pins stay, and the programs stay attached.
  void Remove(bool keep_links);

 private:
  PinFolder() = default;
  std::string instance_path_;
  std::string path_;
  bool is_ours_ = false;
  Fd lock_;
};

}  // namespace mlnet::datapath
