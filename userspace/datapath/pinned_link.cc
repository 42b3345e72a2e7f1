// SPDX-License-Identifier: Apache-2.0
#include "datapath/pinned_link.h"

#include <bpf/bpf.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/errno_error.h"

namespace mlnet::datapath {
namespace {

// 0: it is gone. The interface is the first member for every kind of link to a device.
unsigned IfindexOf(int link) {
  bpf_link_info info{};
  __u32 bytes = sizeof(info);
  return bpf_obj_get_info_by_fd(link, &info, &bytes) == 0 ? info.xdp.ifindex : 0;
}

}  // namespace

Result<PinnedLink> PinnedLink::Make(Fd link, const std::string& path) {
  PinnedLink pinned;
  pinned.link_ = std::move(link);
  if (path.empty()) return pinned;
  std::error_code ec;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ec);
  if (bpf_obj_pin(pinned.link_.get(), path.c_str()) != 0) return tl::make_unexpected(ErrnoError("pin " + path, errno));
  pinned.path_ = path;
  return pinned;
}

std::optional<PinnedLink> PinnedLink::TakeOver(const std::string& path, int ifindex, int program) {
  if (path.empty()) return std::nullopt;
  PinnedLink pinned;
  pinned.link_ = Fd(bpf_obj_get(path.c_str()));
  if (!pinned.link_) return std::nullopt;
  pinned.path_ = path;  // unpinned, and so detached, where it is of no use
  if (IfindexOf(pinned.link_.get()) != static_cast<unsigned>(ifindex)) return std::nullopt;
  if (bpf_link_update(pinned.link_.get(), program, nullptr) != 0) return std::nullopt;
  return pinned;
}

PinnedLink& PinnedLink::operator=(PinnedLink&& other) noexcept {
  std::swap(link_, other.link_);
  std::swap(path_, other.path_);
  std::swap(stays_, other.stays_);
  return *this;
}

PinnedLink::~PinnedLink() {
  if (!path_.empty() && !stays_) ::unlink(path_.c_str());
}

bool PinnedLink::IsAlive() const { return link_ && IfindexOf(link_.get()) != 0; }

}  // namespace mlnet::datapath
