// SPDX-License-Identifier: Apache-2.0
#include "datapath/pins.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/errno_error.h"
#include "mlnet/job.h"

namespace mlnet::datapath {
namespace fs = std::filesystem;

std::string PinName(std::string name) {
  std::replace(name.begin(), name.end(), '.', ':');
  return name;
}

Result<PinFolder> PinFolder::Take(const std::string& pin_root, const std::string& instance) {
  PinFolder folder;
  folder.instance_path_ = pin_root + "/" + PinName(instance);
  folder.path_ = folder.instance_path_ + "/v" + std::to_string(MLNET_ABI_VERSION);
  std::error_code ec;
  fs::create_directories(folder.path_, ec);
  if (ec) {
    const bool is_denied = ec.value() == EACCES || ec.value() == EPERM;
    return tl::make_unexpected(ErrnoError(
        "create " + folder.path_, ec.value(),
        is_denied ? "run mlnetd as root, or make the folder and give it to mlnetd's user"
                  : "mount -t bpf bpf /sys/fs/bpf; `ip netns exec` hides it, use nsenter --net="));
  }
  struct statfs st;
  if (::statfs(folder.path_.c_str(), &st) != 0 || static_cast<unsigned long>(st.f_type) != BPF_FS_MAGIC) {
    fs::remove_all(folder.instance_path_, ec);
    return Err(ErrorCode::kUnsupported, pin_root + " is not on a BPF file system",
               "mount -t bpf bpf /sys/fs/bpf; `ip netns exec` hides it, use nsenter --net=");
  }
  folder.lock_ = Fd(::open(folder.instance_path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.lock_) return tl::make_unexpected(ErrnoError("open " + folder.instance_path_, errno));
  if (::flock(folder.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    folder.lock_.Reset();  // not ours to remove
    return Err(ErrorCode::kConflict, "another mlnetd runs as instance '" + instance + "' (it holds " +
                                         folder.instance_path_ + ")",
               "stop it, or choose another daemon.instance");
  }
  return folder;
}

PinFolder::~PinFolder() {
  if (lock_ && is_ours_) Remove(/*keep_links=*/false);
}

bool PinFolder::HasMaps() const {
  std::error_code ec;
  return fs::exists(path_ + "/maps", ec);
}

std::vector<std::string> PinFolder::OtherLayouts() const {
  std::vector<std::string> others;
  std::error_code ec;
  for (const fs::directory_entry& version : fs::directory_iterator(instance_path_, ec)) {
    if (version.path() != path_) others.push_back(version.path().filename());
  }
  return others;
}

Result<void> PinFolder::Clear() {
  std::error_code ec;
  for (const fs::directory_entry& version : fs::directory_iterator(instance_path_, ec)) {
    fs::remove_all(version.path(), ec);  // nobody alive uses it
  }
  fs::create_directories(path_, ec);
  if (ec) return tl::make_unexpected(ErrnoError("create " + path_, ec.value()));
  is_ours_ = true;
  return {};
}

void PinFolder::TakeOver() {
  std::error_code ec;
  for (const std::string& other : OtherLayouts()) fs::remove_all(instance_path_ + "/" + other, ec);
  is_ours_ = true;
}

void PinFolder::Remove(bool keep_links) {
  const Fd lock = std::move(lock_);  // until everything is gone
  std::error_code ec;
  for (const char* sub : {"/maps", "/inner", "/progs", "/links", "/tags"}) {
    if (keep_links && std::string(sub) == "/links") continue;
    fs::remove_all(path_ + sub, ec);
  }
  if (keep_links && fs::exists(path_ + "/links", ec)) return;
  // Empty by now, the lock's own folder included; the next daemon makes it again.
  ::rmdir(path_.c_str());
  ::rmdir(instance_path_.c_str());
}

}  // namespace mlnet::datapath
