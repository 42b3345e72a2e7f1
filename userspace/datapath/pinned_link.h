// SPDX-License-Identifier: Apache-2.0
// A program's link to an interface. Pinned it outlives a daemon that is killed, and the next one puts its own program in
// the other's place without a moment between.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/fd.h"
#include "mlnet/error.h"

namespace mlnet::datapath {

class PinnedLink {
 public:
  PinnedLink() = default;
  /// `path` empty: it is not pinned.
  static Result<PinnedLink> Make(Fd link, const std::string& path);
  /// What an earlier daemon pinned at `path`, with `program` in it; nullopt: there is none, or none of this interface.
  static std::optional<PinnedLink> TakeOver(const std::string& path, int ifindex, int program);
  PinnedLink(PinnedLink&& other) noexcept : link_(std::move(other.link_)), path_(std::exchange(other.path_, {})), stays_(other.stays_) {}
  PinnedLink& operator=(PinnedLink&& other) noexcept;
  ~PinnedLink();

  explicit operator bool() const { return static_cast<bool>(link_); }
  /// Its pin stays when this object goes, and the program with it.
  void Stay(bool stays) { stays_ = stays; }
  /// False when the interface is gone or somebody detached the program.
  bool IsAlive() const;

 private:
  Fd link_;
  std::string path_;
  bool stays_ = false;
};

}  // namespace mlnet::datapath
