// SPDX-License-Identifier: Apache-2.0
// mlnet-lab status: the hosts of a lab, where they are and whether their daemons live.
#include <fmt/format.h>

#include "commands.h"
#include "process.h"
#include "units.h"

namespace mlnet::lab {

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
          {"hosts", hosts}};
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
}

void AddStatusCommand(CLI::App& app, Globals& globals) {
  SetAction(app.add_subcommand("status", "Show a lab's hosts"), globals, [&globals]() -> Result<void> {
    const Paths paths(globals.name);
    const auto state = LoadState(paths);
    if (!state) return tl::make_unexpected(state.error());
    PrintStatus(paths, *state, globals.json);
    return {};
  });
}

}  // namespace mlnet::lab
