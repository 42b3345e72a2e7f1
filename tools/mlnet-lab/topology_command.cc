// SPDX-License-Identifier: Apache-2.0
// mlnet-lab topology: what a topology file says, with addresses given out and defaults filled in. Nothing is built: it is for
// those who build the same from something else, as vm_testbed does from virtual machines.
#include <fmt/format.h>

#include "commands.h"
#include "units.h"

namespace mlnet::lab {
namespace {

void PrintTopology(const Topology& topology) {
  fmt::print("topology '{}': {} hosts, MTU {}\n", topology.name, topology.hosts.size(), topology.mtu);
  fmt::print("{:<12}{:<12}{:<14}{:<12}{}\n", "HOST", "ROLE", "ADDRESS", "RATE", "RACK");
  for (const Host& host : topology.hosts) {
    fmt::print("{:<12}{:<12}{:<14}{:<12}{}\n", host.name, host.is_aggregator ? "aggregator" : "worker", host.address,
               FormatRate(host.rate_bps), host.rack.empty() ? "-" : host.rack);
  }
}

}  // namespace

void AddTopologyCommand(CLI::App& app, Globals& globals) {
  auto file = std::make_shared<std::string>();
  auto* command = app.add_subcommand("topology", "Check a topology file, and show what it says");
  command->add_option("file", *file, "Topology file")->required();
  SetAction(command, globals, [&globals, file]() -> Result<void> {
    auto loaded = LoadTopology(*file);
    if (!loaded) return tl::make_unexpected(loaded.error());
    const auto topology = Finish(std::move(*loaded));
    if (!topology) return tl::make_unexpected(topology.error());
    if (globals.json) {
      Json json = TopologyToJson(Paths(topology->name), *topology);
      json["schema"] = "mlnet-lab.topology/1";
      json["name"] = topology->name;
      fmt::print("{}\n", json.dump());
    } else {
      PrintTopology(*topology);
    }
    return {};
  });
}

}  // namespace mlnet::lab
