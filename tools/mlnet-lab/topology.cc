// SPDX-License-Identifier: Apache-2.0
#include "topology.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "fault/fault.h"
#include "units.h"
#include "yaml_keys.h"

namespace mlnet::lab {
namespace {

constexpr size_t kHostsMax = LAB_HOSTS_MAX;

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

Result<void> ReadFaultValues(const YAML::Node& node, const std::string& where, Faults& faults) {
  if (auto r = Read(node, where, "loss", faults.loss_ppm, ParsePercent); !r) return r;
  if (auto r = Read(node, where, "duplicate", faults.duplicate_ppm, ParsePercent); !r) return r;
  if (auto r = Read(node, where, "reorder", faults.reorder_ppm, ParsePercent); !r) return r;
  if (auto r = Read(node, where, "corrupt", faults.corrupt_ppm, ParsePercent); !r) return r;
  return Read(node, where, "delay", faults.delay_us, ParseDuration);
}

// The plain keys hold for both directions; tx and rx override them for one.
Result<void> ReadFaults(const YAML::Node& node, const std::string& where, Host& host) {
  if (!node) return {};
  std::set<std::string> keys = {"loss", "duplicate", "reorder", "corrupt", "delay"};
  for (const char* dir : {"tx", "rx"}) {
    if (!node[dir]) continue;
    if (auto r = CheckKeys(node[dir], where + "." + dir, keys); !r) return r;
  }
  keys.insert({"tx", "rx"});
  if (auto r = CheckKeys(node, where, keys); !r) return r;
  for (auto [dir, faults] : {std::pair{"tx", &host.tx}, {"rx", &host.rx}}) {
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
  const auto role = node["role"] ? node["role"].as<std::string>() : "worker";
  if (role != "worker" && role != "aggregator") {
    return Err(ErrorCode::kInvalidArgument, fmt::format("{}.role: '{}' is not a role", where, role),
               "roles are worker and aggregator");
  }
  host.is_aggregator = role == "aggregator";
  if (node["rack"]) host.rack = node["rack"].as<std::string>();
  for (const auto& source : {defaults, node}) {
    if (!source) continue;
    if (auto r = Read(source, where, "rate", host.rate_bps, ParseRate); !r)
      return tl::make_unexpected(r.error());
    if (auto r = ReadFaults(source["faults"], where + ".faults", host); !r)
      return tl::make_unexpected(r.error());
  }
  return host;
}

Result<Topology> ReadTopology(const YAML::Node& root) {
  if (auto r = CheckKeys(root, "topology", {"version", "name", "mtu", "seed", "switch", "defaults", "hosts"});
      !r) {
    return tl::make_unexpected(r.error());
  }
  if (root["version"] && root["version"].as<int>() != 1) {
    return Err(ErrorCode::kInvalidArgument, "topology.version must be 1");
  }
  Topology topology;
  if (root["name"]) topology.name = root["name"].as<std::string>();
  if (root["mtu"]) topology.mtu = root["mtu"].as<uint32_t>();
  if (root["seed"]) topology.seed = root["seed"].as<uint64_t>();
  if (root["switch"]) {
    if (auto r = CheckKeys(root["switch"], "switch", {"multicast_snooping"}); !r)
      return tl::make_unexpected(r.error());
    topology.multicast_snooping = root["switch"]["multicast_snooping"].as<bool>(false);
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

}  // namespace

Result<Topology> LoadTopology(const std::string& path) {
  // yaml-cpp reports by exceptions; they end here.
  try {
    auto topology = ReadTopology(YAML::LoadFile(path));
    if (topology) return topology;
    Error error = topology.error();
    error.message = path + ": " + error.message;
    return tl::make_unexpected(error);
  } catch (const YAML::BadFile&) {
    return Err(ErrorCode::kInvalidArgument, fmt::format("cannot read topology file {}", path));
  } catch (const YAML::Exception& e) {
    return Err(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, e.what()));
  }
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
  std::set<std::string> names;
  for (size_t i = 0; i < topology.hosts.size(); ++i) {
    Host& host = topology.hosts[i];
    if (auto r = CheckName("host", host.name, 11); !r) return tl::make_unexpected(r.error());
    if (host.name == "switch")
      return Err(ErrorCode::kInvalidArgument, "'switch' is the name of the lab's switch, not of a host");
    if (!names.insert(host.name).second) {
      return Err(ErrorCode::kInvalidArgument, fmt::format("host '{}' is named twice", host.name));
    }
    host.address = fmt::format("10.77.0.{}", i + 1);
    host.mac = fmt::format("02:4d:4c:00:00:{:02x}", i + 1);
  }
  return topology;
}

}  // namespace mlnet::lab
