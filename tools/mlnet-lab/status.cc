// SPDX-License-Identifier: Apache-2.0
// mlnet-lab status: the hosts of a lab, where they are and whether their daemons live, and what the racks sent.
#include <fmt/format.h>

#include "commands.h"
#include "counters.h"
#include "process.h"
#include "units.h"

namespace mlnet::lab {
namespace {

Json TrafficJson(const Traffic& traffic) {
  return {{"bytes", traffic.bytes}, {"packets", traffic.packets}, {"dropped", traffic.dropped}};
}

// Counters need root and a switch that is there: null where they cannot be read.
Json RacksJson(const Paths& paths, const State& state) {
  Json racks = Json::array();
  if (state.topology.racks.empty()) return racks;
  const auto traffic = ReadTraffic(paths);
  for (const auto& rack : state.topology.racks) {
    Json j = RackToJson(state.topology, rack);
    const bool is_known = traffic && traffic->contains(rack.name);
    j["tx"] = is_known && traffic->at(rack.name).tx ? TrafficJson(*traffic->at(rack.name).tx) : Json();
    j["rx"] = is_known ? TrafficJson(traffic->at(rack.name).rx) : Json();
    racks.push_back(std::move(j));
  }
  return racks;
}

void PrintRacks(const Json& racks) {
  if (racks.empty()) return;
  fmt::print("\n{:<12}{:<12}{:<12}{:>14}{:>14}  {}\n", "RACK", "UP", "DOWN", "TX BYTES", "RX BYTES", "HOSTS");
  const auto bytes = [](const Json& traffic) {
    return traffic.is_null() ? "-" : std::to_string(traffic["bytes"].get<uint64_t>());
  };
  for (const auto& rack : racks) {
    fmt::print("{:<12}{:<12}{:<12}{:>14}{:>14}  {}\n", rack["name"].get<std::string>(),
               FormatRate(rack["up_bps"].get<uint64_t>()), FormatRate(rack["down_bps"].get<uint64_t>()),
               bytes(rack["tx"]), bytes(rack["rx"]), fmt::join(rack["hosts"].get<std::vector<std::string>>(), " "));
  }
}

}  // namespace

Json StatusJson(const Paths& paths, const State& state) {
  Json hosts = Json::array();
  for (const auto& host : state.topology.hosts) {
    Json j = HostToJson(paths, host);
    const auto id = ReadPidfile(paths.Pidfile(host.name));
    j["pid"] = id ? Json(id->pid) : Json(nullptr);
    hosts.push_back(std::move(j));
  }
  return {{"schema", "mlnet-lab.status/1"},
          {"name", paths.lab},
          {"ready", state.is_ready},
          {"daemons", state.has_daemons},
          {"xdp", state.xdp == XdpMode::kOn ? "on" : "off"},
          {"mtu", state.topology.mtu},
          {"seed", state.topology.seed},
          {"switch_netns", paths.Netns(Paths::kSwitch)},
          {"hosts", hosts},
          {"oversubscription", state.topology.oversubscription},
          {"racks", RacksJson(paths, state)}};
}

void PrintStatus(const Paths& paths, const State& state, bool json) {
  const Json status = StatusJson(paths, state);
  if (json) {
    fmt::print("{}\n", status.dump());
    return;
  }
  fmt::print("lab '{}': {} hosts, MTU {}, XDP {}{}\n", paths.lab, state.topology.hosts.size(),
             state.topology.mtu, status["xdp"].get<std::string>(), state.is_ready ? "" : ", NOT READY");
  fmt::print("{:<12}{:<12}{:<14}{:<12}{:<10}{}\n", "HOST", "ROLE", "ADDRESS", "RATE", "MLNETD", "NETNS");
  for (const auto& h : status["hosts"]) {
    const std::string pid =
        h["pid"].is_null() ? (state.has_daemons ? "dead" : "-") : std::to_string(h["pid"].get<int>());
    fmt::print("{:<12}{:<12}{:<14}{:<12}{:<10}{}\n", h["name"].get<std::string>(),
               h["role"].get<std::string>(), h["address"].get<std::string>(),
               FormatRate(h["rate_bps"].get<uint64_t>()), pid, h["netns"].get<std::string>());
  }
  PrintRacks(status["racks"]);
}

void AddStatusCommand(CLI::App& app, Globals& globals) {
  SetAction(app.add_subcommand("status", "Show a lab's hosts and racks"), globals, [&globals]() -> Result<void> {
    const Paths paths(globals.name);
    const auto state = LoadState(paths);
    if (!state) return tl::make_unexpected(state.error());
    PrintStatus(paths, *state, globals.json);
    return {};
  });
}

}  // namespace mlnet::lab
