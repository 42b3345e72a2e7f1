// SPDX-License-Identifier: Apache-2.0
#include "daemon/ifaces.h"

#include <spdlog/spdlog.h>

#include "datapath/netdev.h"

namespace mlnet::daemon {

namespace {

constexpr int kLocalLinkMtu = 1500;

}  // namespace

using control::IfaceConfig;
using control::IfaceRecord;
using control::Json;

void Ifaces::Want(const IfaceConfig& config) { ports_[config.name].config = config; }

Result<void> Ifaces::TryAttach(Port& port) {
  const IfaceConfig& config = port.config;
  datapath::AttachRequest request{config.name, config.mode, config.share == "shared", ""};
  if (!config.detach_on_stop) request.pin_link = pin_dir_ + "/links/" + config.name;
  auto attached = datapath::Attachment::Attach(program_, request);
  if (!attached) return tl::make_unexpected(attached.error());
  port.attachment = std::make_unique<datapath::Attachment>(std::move(*attached));
  port.problem = {};
  const datapath::AttachState& state = port.attachment->state();
  spdlog::info("{}: attached, {} mode, via {} ({})", config.name, state.mode, state.via, state.why);
  if (config.mode == "auto" && state.mode == "generic") {
    spdlog::warn("{}: generic mode is several times slower: {}", config.name, state.why);
  }
  return {};
}

Result<void> Ifaces::Attach(const IfaceConfig& config) {
  const auto it = ports_.find(config.name);
  if (it != ports_.end() && it->second.attachment != nullptr) {
    const IfaceConfig& now = it->second.config;
    if (now.mode == config.mode && now.share == config.share) {
      it->second.config.aggregator = config.aggregator;
      return {};
    }
    return Err(ErrorCode::kConflict, config.name + " is attached already, in another way",
               "mlnetctl iface detach " + config.name);
  }
  Port port{config, nullptr, {}};
  if (auto ok = TryAttach(port); !ok) return ok;
  ports_[config.name] = std::move(port);
  return {};
}

Result<void> Ifaces::Detach(const std::string& name) {
  if (ports_.erase(name) == 0) return Err(ErrorCode::kUnavailable, name + " is not attached", "mlnetctl iface list");
  spdlog::info("{}: detached", name);
  return {};
}

void Ifaces::Reconcile() {
  for (auto& [name, port] : ports_) {
    if (port.attachment != nullptr && !port.attachment->IsAlive()) {
      spdlog::error("{}: the program is gone; somebody detached it, or the interface was removed", name);
      port.attachment.reset();
    }
    if (port.attachment != nullptr) continue;
    auto ok = TryAttach(port);
    if (ok || ok.error().message == port.problem.message) continue;
    port.problem = ok.error();
    spdlog::error("{}", port.problem.ToString());
  }
}

std::vector<IfaceRecord> Ifaces::Records() const {
  std::vector<IfaceRecord> records;
  for (const auto& [name, port] : ports_) {
    IfaceRecord record{name, "", 0, 0, port.config.aggregator, port.attachment != nullptr, port.config.rate_bps};
    if (const auto dev = datapath::ReadNetdev(name)) {
      record.address = dev->address;
      record.prefix = dev->prefix;
      record.mtu = dev->mtu;
    }
    records.push_back(std::move(record));
  }
  return records;
}

Json Ifaces::Show(const std::string& name) const {
  Json shown = {{"name", name}, {"attached", false}, {"aggregator", false}, {"mode", nullptr}, {"via", nullptr},
                {"why", ""}, {"prog_id", nullptr}};
  if (const auto dev = datapath::ReadNetdev(name)) {
    shown["ifindex"] = dev->ifindex;
    shown["driver"] = dev->driver;
    shown["mtu"] = dev->mtu;
    shown["speed_mbps"] = dev->speed_mbps;
    shown["address"] = dev->address;
    shown["up"] = dev->is_up;
  }
  const auto it = ports_.find(name);
  if (it == ports_.end()) return shown;
  shown["aggregator"] = it->second.config.aggregator;
  if (it->second.attachment == nullptr) {
    shown["why"] = it->second.problem.message;
    return shown;
  }
  const datapath::AttachState& state = it->second.attachment->state();
  shown["attached"] = true;
  shown["mode"] = state.mode;
  shown["via"] = state.via;
  shown["why"] = state.why;
  shown["prog_id"] = state.prog_id;
  return shown;
}

Json Ifaces::List() const {
  Json list = Json::array();
  for (const std::string& name : datapath::NetdevNames()) list.push_back(Show(name));
  return list;
}

Json Ifaces::Problems() const {
  Json problems = Json::array();
  for (const auto& [name, port] : ports_) {
    if (port.attachment != nullptr && port.attachment->state().mode == "generic") {
      problems.push_back({{"message", name + " runs in generic mode: several times slower than native"},
                          {"hint", port.attachment->state().why}});
    }
    if (port.attachment == nullptr) problems.push_back({{"message", port.problem.message}, {"hint", port.problem.hint}});
  }
  if (ports_.empty()) {
    problems.push_back({{"message", "no interface carries the program"}, {"hint", "mlnetctl iface attach NAME"}});
  }
  return problems;
}

bool Ifaces::AnyAttached() const {
  for (const auto& [name, port] : ports_) {
    if (port.attachment != nullptr) return true;
  }
  return false;
}

int Ifaces::Ifindex(const std::string& name) const {
  const auto it = ports_.find(name);
  return it == ports_.end() || it->second.attachment == nullptr ? 0 : it->second.attachment->state().ifindex;
}

control::Mac Ifaces::MacOf(const std::string& name) const {
  const auto dev = datapath::ReadNetdev(name);
  return dev ? dev->mac : control::Mac{};
}

Result<void> Ifaces::OpenLocalLink(const std::string& address, const std::string& instance) {
  auto link = datapath::LocalLink::Create(address, kLocalLinkMtu, instance);
  if (!link) return tl::make_unexpected(link.error());
  // On the ranks' end as well: answers to them turn round on the other, and a veth drops what comes so unless
  // its peer has a program.
  std::vector<datapath::Attachment> ends;
  for (const char* end : {datapath::kLocalLinkInner, datapath::kLocalLinkOuter}) {
    auto attached = datapath::Attachment::Attach(program_, {end, "native", false, ""});
    if (!attached) return tl::make_unexpected(attached.error());
    ends.push_back(std::move(*attached));
  }
  local_link_.emplace(std::move(*link));
  local_ends_ = std::move(ends);
  local_address_ = address;
  return {};
}

bool Ifaces::KeepsLinks() const {
  for (const auto& [name, port] : ports_) {
    if (port.attachment != nullptr && !port.config.detach_on_stop) return true;
  }
  return false;
}

}  // namespace mlnet::daemon
