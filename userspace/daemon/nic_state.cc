// SPDX-License-Identifier: Apache-2.0
#include "daemon/nic_state.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "base/errno_error.h"
#include "base/read_file.h"

namespace mlnet::daemon {

using control::Json;

namespace {

std::string BootId() {
  const std::string id = ReadFile("/proc/sys/kernel/random/boot_id").value_or("");
  return id.substr(0, id.find('\n'));
}

}  // namespace

NicState::NicState(const std::string& folder, const std::string& instance) : path_(folder + "/" + instance + ".nics.json") {
  content_ = Json::parse(ReadFile(path_).value_or(""), nullptr, /*allow_exceptions=*/false);
  if (!content_.is_object() || content_.value("boot_id", "") != BootId()) content_ = {{"boot_id", BootId()}};
}

void NicState::UndoAll(const char* section, const std::set<std::string>& kept, const std::function<void(const std::string&, const Json&)>& undo) {
  const Json entries = content_.value(section, Json::object());
  for (const auto& [iface, entry] : entries.items()) {
    if (kept.contains(iface)) continue;
    spdlog::info("{}: undoing what an earlier mlnetd left ({})", iface, section);
    undo(iface, entry);
    Forget(section, iface);
  }
}

Result<void> NicState::Remember(const char* section, const std::string& iface, Json entry) {
  content_[section][iface] = std::move(entry);
  return Save();
}

void NicState::Forget(const char* section, const std::string& iface) {
  if (Find(section, iface).is_null()) return;
  content_[section].erase(iface);
  if (auto ok = Save(); !ok) spdlog::warn("{}", ok.error().ToString());
}

Json NicState::Find(const char* section, const std::string& iface) const {
  return content_.value(section, Json::object()).value(iface, Json());
}

// A file that says nothing is no file.
Result<void> NicState::Save() const {
  std::error_code ec;
  bool is_empty = true;
  for (const auto& [section, entries] : content_.items()) is_empty = is_empty && (!entries.is_object() || entries.empty());
  if (is_empty) {
    std::filesystem::remove(path_, ec);
    return {};
  }
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ec);
  const std::string fresh = path_ + ".new";
  {
    std::ofstream file(fresh, std::ios::trunc);
    file << content_.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
    if (!file.flush()) return tl::make_unexpected(ErrnoError("write " + fresh, errno, "daemon.state_dir must be a folder that mlnetd may write to"));
  }
  std::filesystem::rename(fresh, path_, ec);
  if (ec) return tl::make_unexpected(ErrnoError("write " + path_, ec.value()));
  return {};
}

}  // namespace mlnet::daemon
