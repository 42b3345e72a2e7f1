// SPDX-License-Identifier: Apache-2.0
// What others see of this host's NICs: the store's record, the operator's list, the problems of `status`.
#include <algorithm>

#include "daemon/ifaces.h"
#include "datapath/links.h"
#include "datapath/netdev.h"

namespace mlnet::daemon {

using control::IfaceRecord;
using control::Json;

namespace {

void ShowProgram(const datapath::AttachState& state, const std::string& why, Json& shown) {
  shown["attached"] = true;
  shown["mode"] = state.mode;
  shown["via"] = state.via;
  shown["why"] = why.empty() ? state.why : why;
  shown["prog_id"] = state.prog_id;
}

// A VLAN's or macvlan's speed is that of the NIC below.
std::string NicBelow(const std::vector<Link>& links, const std::string& name) {
  const auto link = std::find_if(links.begin(), links.end(), [&](const Link& l) { return l.name == name; });
  if (link == links.end() || link->below == 0 || (link->kind != "vlan" && link->kind != "macvlan")) return name;
  const auto below = std::find_if(links.begin(), links.end(), [&](const Link& l) { return l.ifindex == link->below; });
  return below == links.end() ? name : NicBelow(links, below->name);
}

// Of a bond its driver says what those members give that can send; nothing holds if one member is not known. 0: unknown.
uint64_t DriversRate(const std::string& name, const std::map<std::string, datapath::Attachment>& programs) {
  const auto links = datapath::ReadLinks();
  if (!links) return 0;
  for (const auto& [device, program] : programs) {
    const auto nic = datapath::ReadNetdev(NicBelow(*links, device));
    if (!nic || nic->speed_mbps == 0) return 0;
  }
  const auto dev = datapath::ReadNetdev(name);
  return dev ? static_cast<uint64_t>(dev->speed_mbps) * 1'000'000 : 0;
}

}  // namespace

std::vector<IfaceRecord> Ifaces::Records() const {
  std::vector<IfaceRecord> records;
  for (const auto& [name, port] : ports_) {
    const uint64_t rate_bps = port.config.rate_bps != 0 ? port.config.rate_bps : DriversRate(name, port.programs);
    IfaceRecord record{name, "", 0, 0, port.config.aggregator, port.IsAttached(), rate_bps};
    if (const auto dev = datapath::ReadNetdev(name)) {
      record.address = dev->address;
      record.address6 = dev->address6;
      record.prefix6 = dev->prefix6;
      record.prefix = dev->prefix;
      record.mtu = dev->mtu;
    }
    records.push_back(std::move(record));
  }
  return records;
}

Json Ifaces::Show(const std::string& name) const {
  Json shown = {{"name", name}, {"attached", false}, {"aggregator", false}, {"mode", nullptr}, {"via", nullptr},
                {"why", ""}, {"prog_id", nullptr}, {"tags", nullptr}, {"devices", Json::array()}};
  if (const auto dev = datapath::ReadNetdev(name)) {
    shown["ifindex"] = dev->ifindex;
    shown["driver"] = dev->driver;
    shown["mtu"] = dev->mtu;
    shown["speed_mbps"] = dev->speed_mbps;
    shown["address"] = dev->address;
    shown["address6"] = dev->address6;
    shown["up"] = dev->is_up;
  }
  const auto it = ports_.find(name);
  if (it == ports_.end()) {
    if (const auto skipped = skipped_.find(name); skipped != skipped_.end()) shown["why"] = skipped->second;
    for (const auto& [owner, port] : ports_) {
      if (const auto program = port.programs.find(name); program != port.programs.end()) {
        ShowProgram(program->second.state(), "a member of " + owner, shown);
      }
    }
    return shown;
  }
  const Port& port = it->second;
  shown["aggregator"] = port.config.aggregator;
  for (const auto& [device, program] : port.programs) shown["devices"].push_back(device);
  if (port.tag) shown["tags"] = port.tag->via();
  if (!port.programs.empty()) ShowProgram(port.programs.begin()->second.state(), port.why, shown);
  if (port.IsAttached()) return shown;
  shown["attached"] = false;
  shown["why"] = port.problem.message;
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
    for (const auto& [device, program] : port.programs) {
      if (program.state().mode != "generic" || port.config.mode == "generic") continue;  // asked for is no problem
      const std::string message = device + " runs in generic mode: several times slower than native";
      if (port.why.empty()) problems.push_back({{"message", message}, {"hint", program.state().why}});
      else problems.push_back({{"message", message + "; " + port.why}, {"hint", port.instead}});
    }
    if (!port.tag_problem.message.empty()) {
      problems.push_back({{"message", name + ": packets keep the DSCP that processes set: " + port.tag_problem.message},
                          {"hint", port.tag_problem.hint}});
    }
    if (!port.IsAttached()) problems.push_back({{"message", port.problem.message}, {"hint", port.problem.hint}});
  }
  if (!ports_.empty()) return problems;
  std::string reasons;
  for (const auto& [name, why] : skipped_) reasons += (reasons.empty() ? "" : "; ") + why;
  problems.push_back({{"message", "no interface carries the program" + (reasons.empty() ? "" : ": " + reasons)},
                      {"hint", "mlnetctl iface attach NAME"}});
  return problems;
}

Json Ifaces::TagCounters() const {
  struct Outcome {
    const char* name;
    const char* help;
  };
  static constexpr Outcome kOutcomes[] = {
#define MLNET_X(name, help) {#name, help},
      MLNET_TAGS(MLNET_X)
#undef MLNET_X
  };
  Json rows = Json::array();
  const auto counters = tagger_ ? tagger_->Read() : Result<datapath::TagCounters>{};
  for (size_t c = 0; counters && c < counters->size(); ++c) {
    for (size_t i = 0; i < MLNET_TAG_COUNT; ++i) {
      const uint64_t packets = (*counters)[c].packets[i];
      if (packets != 0) rows.push_back({{"class", c}, {"outcome", kOutcomes[i].name}, {"packets", packets}, {"help", kOutcomes[i].help}});
    }
  }
  return rows;
}

bool Ifaces::AnyAttached() const {
  return std::any_of(ports_.begin(), ports_.end(), [](const auto& port) { return !port.second.programs.empty(); });
}

int Ifaces::Ifindex(const std::string& name) const {
  const auto it = ports_.find(name);
  if (it == ports_.end() || it->second.programs.empty()) return 0;
  const auto dev = datapath::ReadNetdev(name);
  return dev ? dev->ifindex : 0;
}

control::Mac Ifaces::MacOf(const std::string& name) const {
  const auto dev = datapath::ReadNetdev(name);
  return dev ? dev->mac : control::Mac{};
}

}  // namespace mlnet::daemon
