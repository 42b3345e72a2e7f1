// SPDX-License-Identifier: Apache-2.0
#include "daemon/ifaces.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "control/nic_path.h"
#include "datapath/links.h"
#include "datapath/netdev.h"
#include "datapath/pins.h"
#include "mlnet/wire.h"

namespace mlnet::daemon {

namespace {

constexpr int kLocalLinkMtu = MLNET_MTU_MAX;
constexpr const char* kAttachedSection = "attached";      // by operators: not in the configuration
constexpr const char* kLinkPins = "/links/";  // by device
constexpr const char* kTagPins = "/tags/";    // by interface

// But the local link's, which nobody is to choose.
Result<std::vector<Link>> ReadLinks() {
  auto links = datapath::ReadLinks();
  if (!links) return links;
  std::erase_if(*links, [](const Link& l) { return l.name == datapath::kLocalLinkInner || l.name == datapath::kLocalLinkOuter; });
  return links;
}

}  // namespace

using control::IfaceConfig;
using control::Json;

void Ifaces::Want(const IfaceConfig& config) {
  if (config.match.empty()) {
    ports_[config.name].config = config;
    return;
  }
  // The configuration was checked with the same parser.
  if (auto names = IfnameList::Parse(config.match)) patterns_.push_back({config, std::move(*names)});
}

// Of a bond all members or none carry the program: packets come by any of them.
Result<void> Ifaces::AttachMissing(Port& port, const std::vector<std::string>& devices, const std::string& mode) const {
  const IfaceConfig& config = port.config;
  const bool was_empty = port.programs.empty();
  for (const std::string& device : devices) {
    if (port.programs.contains(device)) continue;
    const auto earlier = state_.Find(kDispatchedSection, device);
    datapath::AttachRequest request{device, mode, config.share == "shared", LinkPin(device), !config.detach_on_stop};
    if (!earlier.is_null()) request.earlier_prog_id = earlier.value("prog_id", 0u);
    auto attached = datapath::Attachment::Attach(program_, request);
    if (!attached) {
      if (was_empty) port.programs.clear();
      if (device != config.name) attached.error().message = config.name + ": " + attached.error().message;
      return tl::make_unexpected(attached.error());
    }
    const datapath::AttachState& state = attached->state();
    spdlog::info("{}: attached{}, {} mode, via {} ({})", config.name, device == config.name ? "" : " to its member " + device, state.mode,
                 state.via, state.why);
    if (config.mode == "auto" && state.mode == "generic") {
      spdlog::warn("{}: generic mode is several times slower: {}", device, port.why.empty() ? state.why : port.why);
    }
    if (state.via == "dispatcher") {
      if (auto ok = state_.Remember(kDispatchedSection, device, {{"prog_id", state.prog_id}}); !ok) spdlog::warn("{}", ok.error().ToString());
    }
    port.programs.emplace(device, std::move(*attached));
  }
  return {};
}

Result<void> Ifaces::Refresh(Port& port, const std::vector<Link>& links) const {
  auto ok = AttachPrograms(port, links);
  if (port.programs.empty()) port.tag.reset();
  else Tag(port);
  return ok;
}

void Ifaces::UseTagger(datapath::Tagger tagger, std::string how) {
  tagger_.emplace(std::move(tagger));
  tag_how_ = std::move(how);
}

// By the interface that has the address: a bond's members only see what the bond has sent.
void Ifaces::Tag(Port& port) const {
  const std::string& name = port.config.name;
  if (!tagger_ || (port.tag && port.tag->IsAlive())) return;
  if (port.tag) spdlog::error("{}: the tc program is gone; somebody removed it", name);
  port.tag.reset();
  auto tag = NicTag::Attach(*tagger_, state_, name, tag_how_, pin_dir_ + kTagPins + datapath::PinName(name));
  const Error before = std::exchange(port.tag_problem, tag ? Error{} : tag.error());
  if (tag) {
    port.tag = std::move(*tag);
    spdlog::info("{}: what processes send is marked, via {}", name, port.tag->via());
  } else if (port.tag_problem.message != before.message) {
    spdlog::warn("{}: what processes send keeps the DSCP that they set: {}", name, port.tag_problem.ToString());
  }
}

Result<void> Ifaces::AttachPrograms(Port& port, const std::vector<Link>& links) const {
  const IfaceConfig& config = port.config;
  std::erase_if(port.programs, [&](const auto& program) {
    if (program.second.IsAlive()) return false;
    spdlog::error("{}: the program is gone; somebody detached it, or the interface was removed", program.first);
    return true;
  });
  const auto path = control::FindNicPath(links, config.name);
  if (!path) {
    port.programs.clear();
    return tl::make_unexpected(path.error());
  }
  std::erase_if(port.programs, [&](const auto& program) {
    return std::find(path->devices.begin(), path->devices.end(), program.first) == path->devices.end();
  });
  port.why = path->no_native;
  port.instead = path->instead;
  if (path->no_native.empty()) return AttachMissing(port, path->devices, config.mode);
  if (config.mode != "native") return AttachMissing(port, path->devices, "generic");
  return Err(ErrorCode::kUnsupported, path->no_native,
             path->instead + "; or take generic mode, several times slower: mlnetctl iface attach " + config.name + " --mode generic");
}

Result<void> Ifaces::Attach(const IfaceConfig& config) {
  const auto it = ports_.find(config.name);
  if (it != ports_.end() && it->second.IsAttached()) {
    const IfaceConfig& now = it->second.config;
    if (now.mode == config.mode && now.share == config.share) {
      it->second.config.aggregator = config.aggregator;
      return {};
    }
    return Err(ErrorCode::kConflict, config.name + " is attached already, in another way",
               "mlnetctl iface detach " + config.name);
  }
  const auto links = ReadLinks();
  if (!links) return tl::make_unexpected(links.error());
  Port port{config};
  if (auto ok = Refresh(port, *links); !ok) return ok;
  ports_.erase(config.name);
  ports_.emplace(config.name, std::move(port));
  MatchLocalEnds();
  NoteAttached(config);
  return {};
}

std::vector<std::string> Ifaces::AttachNew(const Pattern& pattern, const std::vector<Link>& links,
                                           std::map<std::string, std::string>& reasons) {
  std::vector<std::string> attached;
  for (const Link& link : links) {
    if (link.is_loopback || !pattern.names.Matches(link.name)) continue;
    if (ports_.contains(link.name)) {
      if (ports_.at(link.name).IsAttached()) attached.push_back(link.name);
      else reasons[link.name] = ports_.at(link.name).problem.message;
      continue;
    }
    Port port{pattern.config, /*is_matched=*/true};
    port.config.name = link.name;
    port.config.match.clear();
    if (auto ok = Refresh(port, links); !ok) {
      reasons[link.name] = ok.error().message;
      continue;
    }
    ports_.emplace(link.name, std::move(port));
    attached.push_back(link.name);
  }
  return attached;
}

Result<Json> Ifaces::AttachMatching(const IfaceConfig& config) {
  auto names = IfnameList::Parse(config.match);
  if (!names) return tl::make_unexpected(names.error());
  const auto links = ReadLinks();
  if (!links) return tl::make_unexpected(links.error());
  std::map<std::string, std::string> reasons;
  const auto attached = AttachNew({config, std::move(*names)}, *links, reasons);
  if (attached.empty()) {
    std::string text, known;
    for (const auto& [name, why] : reasons) text += (text.empty() ? ": " : "; ") + why;
    for (const Link& link : *links) known += (known.empty() ? "" : ", ") + link.name;
    return Err(reasons.empty() ? ErrorCode::kUnavailable : ErrorCode::kUnsupported,
               "no interface that matches '" + config.match + "' can carry the program" + text, "interfaces here: " + known);
  }
  MatchLocalEnds();
  Json shown = Json::array(), skipped = Json::array();
  for (const std::string& name : attached) {
    NoteAttached(ports_.at(name).config);
    shown.push_back(Show(name));
  }
  for (const auto& [name, why] : reasons) skipped.push_back({{"name", name}, {"why", why}});
  return Json{{"schema", "mlnet.iface.attach/1"}, {"ifaces", shown}, {"skipped", skipped}};
}

Result<void> Ifaces::Detach(const std::string& name) {
  const auto it = ports_.find(name);
  if (it == ports_.end()) return Err(ErrorCode::kUnavailable, name + " is not attached", "mlnetctl iface list");
  for (auto& [device, program] : it->second.programs) program.LetGo();
  ports_.erase(it);
  state_.Forget(kAttachedSection, name);
  spdlog::info("{}: detached", name);
  return {};
}

void Ifaces::FindMatching(const std::vector<Link>& links) {
  std::map<std::string, std::string> reasons;
  for (const Pattern& pattern : patterns_) AttachNew(pattern, links, reasons);
  std::erase_if(reasons, [&](const auto& reason) { return ports_.contains(reason.first); });
  for (const auto& [name, why] : reasons) {
    const auto told = skipped_.find(name);
    if (told == skipped_.end() || told->second != why) spdlog::info("{} matches, but is left out: {}", name, why);
  }
  skipped_ = std::move(reasons);
}

void Ifaces::Reconcile() {
  const auto links = ReadLinks();
  if (!links) {
    spdlog::error("{}", links.error().ToString());
    return;
  }
  for (auto& [name, port] : ports_) {
    const auto ok = Refresh(port, *links);
    const Error before = std::exchange(port.problem, ok ? Error{} : ok.error());
    if (!ok && port.problem.message != before.message) spdlog::error("{}", port.problem.ToString());
  }
  std::erase_if(ports_, [](const auto& port) { return port.second.is_matched && port.second.programs.empty(); });
  FindMatching(*links);
  MatchLocalEnds();
}

Result<void> Ifaces::OpenLocalLink(const std::string& address, const std::string& address6, const std::string& instance, bool takes_over) {
  auto link = datapath::LocalLink::Create(kLocalLinkMtu, instance, takes_over);
  if (!link) return tl::make_unexpected(link.error());
  if (!address.empty()) {
    if (auto ok = link->Lead(address); !ok) return ok;
  }
  if (!address6.empty()) {
    // Where IPv6 is off there are no jobs that need it.
    if (const auto ok = link->Lead(address6)) local_address6_ = address6;
    else spdlog::info("no local link for IPv6: {}", ok.error().ToString());
  }
  if (auto ok = AttachLocalEnds(LocalMode()); !ok) return ok;
  local_link_.emplace(std::move(*link));
  local_address_ = address;
  return {};
}

// On the ranks' end as well: answers to them turn round on the other, and a veth drops what comes so unless
// its peer has a program.
Result<void> Ifaces::AttachLocalEnds(const std::string& mode) {
  local_ends_.clear();  // an interface has one mode at a time
  std::vector<datapath::Attachment> ends;
  for (const char* end : {datapath::kLocalLinkInner, datapath::kLocalLinkOuter}) {
    auto attached = datapath::Attachment::Attach(program_, {end, mode, false, LinkPin(end), false});
    if (!attached) return tl::make_unexpected(attached.error());
    ends.push_back(std::move(*attached));
  }
  local_ends_ = std::move(ends);
  local_mode_ = mode;
  return {};
}

// What comes by the local link is redirected to the NIC. From native mode that needs a NIC whose driver takes such
// frames; from generic mode any will do. So one NIC in generic mode makes the local link generic too.
std::string Ifaces::LocalMode() const {
  const bool is_generic = std::any_of(ports_.begin(), ports_.end(), [](const auto& port) {
    const auto& programs = port.second.programs;
    return std::any_of(programs.begin(), programs.end(), [](const auto& p) { return p.second.state().mode == "generic"; });
  });
  return is_generic ? "generic" : "native";
}

void Ifaces::MatchLocalEnds() {
  if (!local_link_) return;
  const std::string mode = LocalMode();
  if (mode == local_mode_ && !local_ends_.empty()) return;
  if (auto ok = AttachLocalEnds(mode); !ok) spdlog::error("local link: {}", ok.error().ToString());
  else spdlog::info("local link: {} mode, as the NICs need it", mode);
}

void Ifaces::NoteAttached(const IfaceConfig& config) const {
  const Json entry = {{"mode", config.mode}, {"share", config.share}, {"aggregator", config.aggregator}, {"rate_bps", config.rate_bps}};
  if (auto ok = state_.Remember(kAttachedSection, config.name, entry); !ok) spdlog::warn("{}", ok.error().ToString());
}

void Ifaces::WantAsBefore(bool takes_over) {
  if (!takes_over) return state_.UndoAll(kAttachedSection, {}, [](const std::string&, const Json&) {});
  for (const auto& [name, entry] : state_.All(kAttachedSection).items()) {
    IfaceConfig config;
    config.name = name;
    config.mode = entry.value("mode", config.mode);
    config.share = entry.value("share", config.share);
    config.aggregator = entry.value("aggregator", false);
    config.rate_bps = entry.value("rate_bps", uint64_t{0});
    Want(config);
  }
}

std::string Ifaces::LinkPin(const std::string& device) const { return pin_dir_ + kLinkPins + datapath::PinName(device); }

// An earlier daemon's on interfaces that are not wanted any more.
void Ifaces::DropOtherPrograms() {
  std::set<std::string> links, tags;
  if (!local_ends_.empty()) links = {datapath::kLocalLinkInner, datapath::kLocalLinkOuter};
  for (const auto& [name, port] : ports_) {
    for (const auto& [device, program] : port.programs) links.insert(device);
    if (port.tag) tags.insert(name);
  }
  for (const auto& [sub, used] : {std::pair{kLinkPins, links}, std::pair{kTagPins, tags}}) {
    std::set<std::string> pins;
    for (const std::string& name : used) pins.insert(datapath::PinName(name));
    std::error_code ec;
    for (const auto& pin : std::filesystem::directory_iterator(pin_dir_ + sub, ec)) {
      if (!pins.contains(pin.path().filename())) std::filesystem::remove(pin.path(), ec);
    }
  }
  UndoTags(state_, tags);
}

bool Ifaces::KeepsLinks() const {
  return std::any_of(ports_.begin(), ports_.end(), [](const auto& port) {
    return !port.second.programs.empty() && !port.second.config.detach_on_stop;
  });
}

}  // namespace mlnet::daemon
