// SPDX-License-Identifier: Apache-2.0
// mlnet-lab xdp on|off: takes every XDP program off the links and puts it back, so that peers which know
// nothing of XDP are measured on the same links with their segmentation offload.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>

#include "commands.h"
#include "daemons.h"
#include "ports.h"

namespace mlnet::lab {
namespace {

// A switch that failed half way can be repeated: a daemon that is there already is left alone.
Result<bool> IsThere(const Paths& paths, const Host& host, XdpMode mode) {
  const auto list = CallDaemon(paths, host, "iface.list", Json::object());
  if (!list) return tl::make_unexpected(list.error());
  for (const auto& iface : list->value("ifaces", Json::array())) {
    if (iface.value("name", "") == "eth0") return iface.value("attached", false) == (mode == XdpMode::kOn);
  }
  return mode == XdpMode::kOff;
}

// A daemon lets go of a job a moment after its last rank has left; until then it refuses to detach.
constexpr std::chrono::seconds kReleaseTimeout{10};
constexpr std::chrono::milliseconds kReleasePoll{20};

Result<void> Tell(const Paths& paths, const Host& host, XdpMode mode) {
  const auto is_there = IsThere(paths, host, mode);
  if (!is_there) return tl::make_unexpected(is_there.error());
  if (*is_there) return {};
  Json params = {{"name", "eth0"}};
  if (mode == XdpMode::kOn)
    params.update({{"mode", "native"}, {"share", "exclusive"}, {"aggregator", host.is_aggregator}});
  const auto deadline = std::chrono::steady_clock::now() + kReleaseTimeout;
  auto reply = CallDaemon(paths, host, mode == XdpMode::kOn ? "iface.attach" : "iface.detach", params);
  while (!reply && mode == XdpMode::kOff && reply.error().code == ErrorCode::kConflict &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kReleasePoll);
    reply = CallDaemon(paths, host, "iface.detach", params);
  }
  if (reply) return {};
  Error error = reply.error();
  error.message = fmt::format("host {}: {}", host.name, error.message);
  return tl::make_unexpected(error);
}

Result<void> Switch(const Globals& globals, XdpMode mode) {
  if (auto r = RequireRoot(); !r) return r;
  const Paths paths(globals.name);
  auto state = LoadReadyState(paths);
  if (!state) return tl::make_unexpected(state.error());
  const auto lock = LockLab(paths);
  if (!lock) return tl::make_unexpected(lock.error());
  // Ports before daemons when switching on, so that no frame sent by XDP_TX is lost; the other way round for
  // off.
  if (mode == XdpMode::kOn) {
    if (auto r = SetPorts(paths, state->topology, mode); !r) return r;
  }
  if (state->has_daemons) {
    for (const auto& host : state->topology.hosts) {
      if (auto r = Tell(paths, host, mode); !r) return r;
    }
  }
  if (mode == XdpMode::kOff) {
    if (auto r = SetPorts(paths, state->topology, mode); !r) return r;
  }
  state->xdp = mode;
  if (auto r = SaveState(paths, *state); !r) return r;
  const std::string text = mode == XdpMode::kOn ? "on" : "off";
  if (globals.json)
    fmt::print("{}\n", Json{{"schema", "mlnet-lab.xdp/1"}, {"name", globals.name}, {"xdp", text}}.dump());
  else
    fmt::print("lab '{}': XDP {}\n", globals.name, text);
  return {};
}

}  // namespace

void AddXdpCommand(CLI::App& app, Globals& globals) {
  auto mode = std::make_shared<std::string>();
  auto* command =
      app.add_subcommand("xdp", "Detach all XDP programs from the lab's links, or attach them again");
  command->add_option("mode", *mode, "on or off")->required()->check(CLI::IsMember({"on", "off"}));
  SetAction(command, globals,
            [&globals, mode] { return Switch(globals, *mode == "on" ? XdpMode::kOn : XdpMode::kOff); });
}

}  // namespace mlnet::lab
