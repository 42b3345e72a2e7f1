// SPDX-License-Identifier: Apache-2.0
#include "topology.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "base/read_file.h"
#include "fault/fault.h"
#include "units.h"
#include "yaml_keys.h"

namespace mlnet::lab {
namespace {

constexpr size_t kHostsMax = LAB_HOSTS_MAX;
constexpr size_t kRacksMax = LAB_RACKS_MAX;
constexpr double kOversubscriptionMax = 1000;

// Reads `key` through `parse` when it is there.
template <typename T, typename Parse>
Result<void> Read(const YAML::Node& node, const std::string& where, const char* key, T& into, Parse parse) {
  if (!node[key]) return {};
  auto value = parse(node[key].as<std::string>());
  if (!value) {
    Error error = value.error();
    error.message = fmt::format("{}.{}: {}", where, key, error.message);
    return tl::make_unexpected(error);
  }
  into = *value;
  return {};
}

// A value that is no T is an error (YAML::Exception), not an absent one.
template <typename T>
T ValueOr(const YAML::Node& value, T otherwise) {
  return value ? value.as<T>() : otherwise;
}

Result<void> ReadFaultValues(const YAML::Node& node, const std::string& where, Faults& faults) {
  if (auto r = Read(node, where, "loss", faults.loss_ppm, ParsePercent); !r) return r;
  if (auto r = Read(node, where, "duplicate", faults.duplicate_ppm, ParsePercent); !r) return r;
  if (auto r = Read(node, where, "reorder", faults.reorder_ppm, ParsePercent); !r) return r;
  if (auto r = Read(node, where, "corrupt", faults.corrupt_ppm, ParsePercent); !r) return r;
  return Read(node, where, "delay", faults.delay_us, ParseDuration);
}

// The plain keys hold for both directions; tx and rx override them for one.
Result<void> ReadFaults(const YAML::Node& node, const std::string& where, Faults& tx, Faults& rx) {
  if (!node) return {};
  std::set<std::string> keys = {"loss", "duplicate", "reorder", "corrupt", "delay"};
  for (const char* dir : {"tx", "rx"}) {
    if (!node[dir]) continue;
    if (auto r = CheckKeys(node[dir], where + "." + dir, keys); !r) return r;
  }
  keys.insert({"tx", "rx"});
  if (auto r = CheckKeys(node, where, keys); !r) return r;
  for (auto [dir, faults] : {std::pair{"tx", &tx}, {"rx", &rx}}) {
    if (auto r = ReadFaultValues(node, where, *faults); !r) return r;
    if (!node[dir]) continue;
    if (auto r = ReadFaultValues(node[dir], where + "." + dir, *faults); !r) return r;
  }
  return {};
}

Result<Host> ReadHost(const YAML::Node& node, const YAML::Node& defaults, const std::string& where) {
  if (auto r = CheckKeys(node, where, {"name", "role", "rate", "rack", "faults"}); !r)
    return tl::make_unexpected(r.error());
  Host host;
  if (!node["name"]) return Err(ErrorCode::kInvalidArgument, where + ": name is missing");
  host.name = node["name"].as<std::string>();
  const auto role = ValueOr<std::string>(node["role"], "worker");
  if (role != "worker" && role != "aggregator") {
    return Err(ErrorCode::kInvalidArgument, fmt::format("{}.role: '{}' is not a role", where, role),
               "roles are worker and aggregator");
  }
  host.is_aggregator = role == "aggregator";
  host.rack = ValueOr(node["rack"], host.rack);
  for (const auto& source : {defaults, node}) {
    if (!source) continue;
    if (auto r = Read(source, where, "rate", host.rate_bps, ParseRate); !r)
      return tl::make_unexpected(r.error());
    if (auto r = ReadFaults(source["faults"], where + ".faults", host.tx, host.rx); !r)
      return tl::make_unexpected(r.error());
  }
  return host;
}

Result<Rack> ReadRack(const YAML::Node& node, const std::string& where) {
  if (auto r = CheckKeys(node, where, {"name", "rate", "up", "down", "faults"}); !r) return tl::make_unexpected(r.error());
  Rack rack;
  if (!node["name"]) return Err(ErrorCode::kInvalidArgument, where + ": name is missing");
  rack.name = node["name"].as<std::string>();
  for (auto [key, rate] : {std::pair{"rate", &rack.up_bps}, {"rate", &rack.down_bps}, {"up", &rack.up_bps}, {"down", &rack.down_bps}}) {
    if (auto r = Read(node, where, key, *rate, ParseRate); !r) return tl::make_unexpected(r.error());
  }
  if (auto r = ReadFaults(node["faults"], where + ".faults", rack.tx, rack.rx); !r) return tl::make_unexpected(r.error());
  return rack;
}

Result<void> ReadRacks(const YAML::Node& root, Topology& topology) {
  const YAML::Node racks = root["racks"], core = root["core"];
  if (racks && !racks.IsSequence())
    return Err(ErrorCode::kInvalidArgument, "topology.racks must be a list of racks");
  for (size_t i = 0; racks && i < racks.size(); ++i) {
    auto rack = ReadRack(racks[i], fmt::format("racks[{}]", i));
    if (!rack) return tl::make_unexpected(rack.error());
    topology.racks.push_back(std::move(*rack));
  }
  if (!core) return {};
  if (auto r = CheckKeys(core, "core", {"oversubscription"}); !r) return r;
  topology.oversubscription = ValueOr(core["oversubscription"], 0.0);
  return {};
}

Result<Topology> ReadTopology(const YAML::Node& root) {
  if (auto r = CheckKeys(root, "topology",
                         {"version", "name", "mtu", "seed", "ipv6", "switch", "defaults", "core", "racks", "hosts"});
      !r) {
    return tl::make_unexpected(r.error());
  }
  if (ValueOr(root["version"], 1) != 1) {
    return Err(ErrorCode::kInvalidArgument, "topology.version must be 1");
  }
  Topology topology;
  topology.name = ValueOr(root["name"], topology.name);
  topology.mtu = ValueOr(root["mtu"], topology.mtu);
  topology.seed = ValueOr(root["seed"], topology.seed);
  topology.ipv6 = ValueOr(root["ipv6"], topology.ipv6);
  if (root["switch"]) {
    if (auto r = CheckKeys(root["switch"], "switch", {"multicast_snooping", "priorities", "queue_kib", "mark_kib"}); !r)
      return tl::make_unexpected(r.error());
    topology.multicast_snooping = ValueOr(root["switch"]["multicast_snooping"], false);
    topology.priorities = ValueOr(root["switch"]["priorities"], false);
    topology.queue_kib = ValueOr(root["switch"]["queue_kib"], 0U);
    topology.mark_kib = ValueOr(root["switch"]["mark_kib"], 0U);
  }
  const YAML::Node defaults = root["defaults"];
  if (defaults) {
    if (auto r = CheckKeys(defaults, "defaults", {"rate", "faults"}); !r)
      return tl::make_unexpected(r.error());
  }
  if (!root["hosts"] || !root["hosts"].IsSequence()) {
    return Err(ErrorCode::kInvalidArgument, "topology.hosts must be a list of hosts");
  }
  for (size_t i = 0; i < root["hosts"].size(); ++i) {
    auto host = ReadHost(root["hosts"][i], defaults, fmt::format("hosts[{}]", i));
    if (!host) return tl::make_unexpected(host.error());
    topology.hosts.push_back(std::move(*host));
  }
  if (auto r = ReadRacks(root, topology); !r) return tl::make_unexpected(r.error());
  return topology;
}

Result<void> CheckName(const std::string& kind, const std::string& name, size_t length_max) {
  const std::string hint =
      fmt::format("a {} name is a lower-case letter followed by up to {} of a-z 0-9 _", kind, length_max - 1);
  if (name.size() > length_max) {
    return Err(ErrorCode::kInvalidArgument,
               fmt::format("{} name '{}' is too long: {} characters, at most {}", kind, name, name.size(),
                           length_max),
               hint);
  }
  const bool letters = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (name.empty() || !letters || name[0] < 'a' || name[0] > 'z') {
    return Err(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a valid {} name", name, kind), hint);
  }
  return {};
}

// Of the uplink of one rack; nullopt where one of its hosts has no rate.
std::optional<uint64_t> SharedRate(const Topology& topology, const std::string& rack) {
  uint64_t sum = 0;
  for (const Host& host : topology.hosts) {
    if (host.rack != rack) continue;
    if (host.rate_bps == 0) return std::nullopt;
    sum += host.rate_bps;
  }
  return static_cast<uint64_t>(static_cast<double>(sum) / topology.oversubscription);
}

Result<void> FinishRack(const Topology& topology, Rack& rack) {
  const auto is_in_it = [&rack](const Host& host) { return host.rack == rack.name; };
  if (std::none_of(topology.hosts.begin(), topology.hosts.end(), is_in_it)) {
    return Err(ErrorCode::kInvalidArgument, fmt::format("rack '{}' has no host", rack.name),
               "name it as the rack of a host, or leave it out");
  }
  std::optional<uint64_t> rate = 0;
  if (topology.oversubscription > 0) rate = SharedRate(topology, rack.name);
  if (!rate && (!rack.up_bps || !rack.down_bps)) {
    return Err(ErrorCode::kInvalidArgument,
               fmt::format("rack '{}': oversubscription {} of what? Not all of its hosts have a rate", rack.name,
                           topology.oversubscription),
               "give its hosts rates, or the rack one");
  }
  if (!rack.up_bps) rack.up_bps = rate;
  if (!rack.down_bps) rack.down_bps = rate;
  return {};
}

// Without a list of racks there are those that hosts name; with one, a rack that is not in it is a typing error.
Result<void> FinishRacks(Topology& topology) {
  const double ratio = topology.oversubscription;
  if (ratio != 0 && !(ratio >= 1.0 / kOversubscriptionMax && ratio <= kOversubscriptionMax)) {
    return Err(ErrorCode::kInvalidArgument, fmt::format("oversubscription {} is out of range", ratio), "4 means 1:4");
  }
  std::set<std::string> names;
  for (const Host& host : topology.hosts) names.insert(host.name);
  const bool is_listed = !topology.racks.empty();
  for (const Rack& rack : topology.racks) {
    if (!names.insert(rack.name).second)
      return Err(ErrorCode::kInvalidArgument, fmt::format("rack '{}' has a name that is taken", rack.name));
  }
  for (const Host& host : topology.hosts) {
    const auto is_its = [&host](const Rack& rack) { return rack.name == host.rack; };
    if (host.rack.empty() || std::any_of(topology.racks.begin(), topology.racks.end(), is_its)) continue;
    if (is_listed) {
      return Err(ErrorCode::kInvalidArgument, fmt::format("host '{}': unknown rack '{}'", host.name, host.rack),
                 "name it in racks");
    }
    if (!names.insert(host.rack).second)
      return Err(ErrorCode::kInvalidArgument, fmt::format("rack '{}' has a name that is taken", host.rack));
    topology.racks.push_back(Rack{.name = host.rack});
  }
  if (topology.racks.size() > kRacksMax) {
    return Err(ErrorCode::kInvalidArgument,
               fmt::format("a lab has up to {} racks, not {}", kRacksMax, topology.racks.size()));
  }
  for (Rack& rack : topology.racks) {
    if (auto r = CheckName("rack", rack.name, 11); !r) return r;
    if (auto r = FinishRack(topology, rack); !r) return r;
  }
  return {};
}

class Ignored : public YAML::EventHandler {
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// Not by YAML::LoadAll, which finds documents without end in ", {a: b}]".
bool HasTwoDocuments(const std::string& text) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  Ignored events;
  return parser.HandleNextDocument(events) && parser.HandleNextDocument(events);
}

// Names become JSON, which throws where one is not UTF-8. yaml-cpp takes any bytes, and makes single ones of some escapes ("\N").
void TryNames(const Topology& topology) {
  nlohmann::json names = {topology.name};
  for (const Host& host : topology.hosts) names.insert(names.end(), {host.name, host.rack});
  for (const Rack& rack : topology.racks) names.push_back(rack.name);
  (void)names.dump();
}

}  // namespace

std::vector<Link> LinksOf(const Topology& topology) {
  std::vector<Link> links;
  for (const Host& host : topology.hosts) links.push_back({host.name, host.rate_bps, host.rate_bps, host.tx, host.rx});
  for (const Rack& rack : topology.racks)
    links.push_back({rack.name, rack.up_bps.value_or(0), rack.down_bps.value_or(0), rack.tx, rack.rx});
  return links;
}

Result<Topology> ParseTopology(const std::string& text, const std::string& source) {
  // Both libraries report by exceptions; they end here.
  try {
    if (HasTwoDocuments(text)) return Err(ErrorCode::kInvalidArgument, source + ": more than one document");
    auto topology = ReadTopology(YAML::Load(text));
    if (topology) {
      TryNames(*topology);
      return topology;
    }
    Error error = topology.error();
    error.message = source + ": " + error.message;
    return tl::make_unexpected(error);
  } catch (const YAML::Exception& e) {
    return Err(ErrorCode::kInvalidArgument, fmt::format("{}: {}", source, e.what()));
  } catch (const nlohmann::json::type_error&) {
    return Err(ErrorCode::kInvalidArgument, source + ": a name is not UTF-8", "use a-z 0-9 _");
  }
}

Result<Topology> LoadTopology(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text) return Err(ErrorCode::kInvalidArgument, fmt::format("cannot read topology file {}", path));
  return ParseTopology(*text, path);
}

// No '-' in a name: namespaces are called ml-LAB-HOST, and 'down' must never mistake one lab for another.
Result<void> CheckLabName(const std::string& name) { return CheckName("lab", name, 16); }

Result<Topology> Finish(Topology topology) {
  if (auto r = CheckLabName(topology.name); !r) return tl::make_unexpected(r.error());
  if (topology.mtu < 576 || topology.mtu > 9000) {
    return Err(ErrorCode::kInvalidArgument, fmt::format("MTU {} is out of range", topology.mtu),
               "use 576 to 9000");
  }
  if (topology.hosts.empty() || topology.hosts.size() > kHostsMax) {
    return Err(ErrorCode::kInvalidArgument,
               fmt::format("a lab has 1 to {} hosts, not {}", kHostsMax, topology.hosts.size()));
  }
  std::stable_sort(topology.hosts.begin(), topology.hosts.end(),
                   [](const Host& a, const Host& b) { return a.is_aggregator < b.is_aggregator; });
  if (topology.offload && !topology.hosts.back().is_aggregator) {
    return Err(ErrorCode::kInvalidArgument, "--offload: the hosts of ranks cannot sum then, and there is no aggregator",
               "--aggregators 1");
  }
  std::set<std::string> names;
  for (size_t i = 0; i < topology.hosts.size(); ++i) {
    Host& host = topology.hosts[i];
    if (auto r = CheckName("host", host.name, 11); !r) return tl::make_unexpected(r.error());
    if (host.name == "switch")
      return Err(ErrorCode::kInvalidArgument, "'switch' is the name of the lab's switch, not of a host");
    if (!names.insert(host.name).second) {
      return Err(ErrorCode::kInvalidArgument, fmt::format("host '{}' is named twice", host.name));
    }
    host.address = topology.ipv6 ? fmt::format("fd77::{:x}", i + 1) : fmt::format("10.77.0.{}", i + 1);
    host.mac = fmt::format("02:4d:4c:00:00:{:02x}", i + 1);
  }
  if (auto r = FinishRacks(topology); !r) return tl::make_unexpected(r.error());
  const auto links = LinksOf(topology);
  const bool has_rates = std::any_of(links.begin(), links.end(), [](const Link& link) { return link.up_bps != 0 || link.down_bps != 0; });
  if ((topology.queue_kib != 0 || topology.mark_kib != 0) && !has_rates) {
    return Err(ErrorCode::kInvalidArgument, "--queue, --mark: no link has a rate, so nothing queues", "--rate 500mbit");
  }
  return topology;
}

bool IsForwardedInXdp(const Topology& topology) {
  const auto links = LinksOf(topology);
  return topology.offload && topology.racks.empty() && std::all_of(links.begin(), links.end(), [](const Link& link) {
    return link.up_bps == 0 && link.down_bps == 0 && !link.tx.Any() && !link.rx.Any();
  });
}

std::vector<Host> WorkersOf(const Topology& topology) {
  std::vector<Host> workers;
  std::copy_if(topology.hosts.begin(), topology.hosts.end(), std::back_inserter(workers), [](const Host& host) { return !host.is_aggregator; });
  return workers;
}

}  // namespace mlnet::lab
