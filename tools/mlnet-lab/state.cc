// SPDX-License-Identifier: Apache-2.0
#include "state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <fstream>

#include "base/errno_error.h"
#include "base/read_file.h"

namespace mlnet::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kLockTimeout{2000};

Faults FaultsFromJson(const Json& j) {
  return Faults{.loss_ppm = j.at("loss_ppm"),
                .duplicate_ppm = j.at("duplicate_ppm"),
                .reorder_ppm = j.at("reorder_ppm"),
                .corrupt_ppm = j.at("corrupt_ppm"),
                .delay_us = j.at("delay_us")};
}

State StateFromJson(const std::string& lab, const Json& j) {
  State state;
  state.topology.name = lab;
  state.topology.mtu = j.at("mtu");
  state.topology.seed = j.at("seed");
  state.topology.multicast_snooping = j.at("multicast_snooping");
  state.topology.ipv6 = j.at("ipv6");
  state.topology.priorities = j.at("priorities");
  state.topology.queue_kib = j.at("queue_kib");
  state.topology.mark_kib = j.at("mark_kib");
  state.topology.offload = j.at("offload");
  state.topology.oversubscription = j.at("oversubscription");
  for (const auto& r : j.at("racks")) {
    state.topology.racks.push_back(Rack{.name = r.at("name"),
                                        .up_bps = r.at("up_bps").get<uint64_t>(),
                                        .down_bps = r.at("down_bps").get<uint64_t>(),
                                        .tx = FaultsFromJson(r.at("faults").at("tx")),
                                        .rx = FaultsFromJson(r.at("faults").at("rx"))});
  }
  for (const auto& h : j.at("hosts")) {
    state.topology.hosts.push_back(Host{.name = h.at("name"),
                                        .is_aggregator = h.at("role") == "aggregator",
                                        .rate_bps = h.at("rate_bps"),
                                        .rack = h.at("rack"),
                                        .address = h.at("address"),
                                        .mac = h.at("mac"),
                                        .tx = FaultsFromJson(h.at("faults").at("tx")),
                                        .rx = FaultsFromJson(h.at("faults").at("rx"))});
  }
  state.is_ready = j.at("ready");
  state.has_daemons = j.at("daemons");
  state.xdp = j.at("xdp") == "on" ? XdpMode::kOn : XdpMode::kOff;
  return state;
}

}  // namespace

Json FaultsToJson(const Faults& faults) {
  return {{"loss_ppm", faults.loss_ppm},
          {"duplicate_ppm", faults.duplicate_ppm},
          {"reorder_ppm", faults.reorder_ppm},
          {"corrupt_ppm", faults.corrupt_ppm},
          {"delay_us", faults.delay_us}};
}

Json HostToJson(const Paths& paths, const Host& host) {
  return {{"name", host.name},
          {"role", host.is_aggregator ? "aggregator" : "worker"},
          {"netns", paths.Netns(host.name)},
          {"address", host.address},
          {"mac", host.mac},
          {"iface", "eth0"},
          {"socket", paths.Socket(host.name).string()},
          {"log", paths.Log(host.name).string()},
          {"rate_bps", host.rate_bps},
          {"rack", host.rack},
          {"faults", {{"tx", FaultsToJson(host.tx)}, {"rx", FaultsToJson(host.rx)}}}};
}

Json RackToJson(const Topology& topology, const Rack& rack) {
  Json hosts = Json::array();
  for (const auto& host : topology.hosts) {
    if (host.rack == rack.name) hosts.push_back(host.name);
  }
  return {{"name", rack.name},
          {"hosts", hosts},
          {"up_bps", rack.up_bps.value_or(0)},
          {"down_bps", rack.down_bps.value_or(0)},
          {"faults", {{"tx", FaultsToJson(rack.tx)}, {"rx", FaultsToJson(rack.rx)}}}};
}

Json TopologyToJson(const Paths& paths, const Topology& topology) {
  Json hosts = Json::array();
  for (const auto& host : topology.hosts) hosts.push_back(HostToJson(paths, host));
  Json racks = Json::array();
  for (const auto& rack : topology.racks) racks.push_back(RackToJson(topology, rack));
  return {{"mtu", topology.mtu},
          {"seed", topology.seed},
          {"multicast_snooping", topology.multicast_snooping},
          {"priorities", topology.priorities},
          {"queue_kib", topology.queue_kib},
          {"mark_kib", topology.mark_kib},
          {"offload", topology.offload},
          {"ipv6", topology.ipv6},
          {"oversubscription", topology.oversubscription},
          {"racks", racks},
          {"hosts", hosts}};
}

Result<void> CreateDir(const Paths& paths) {
  std::error_code ec;
  fs::create_directories(paths.Dir().parent_path(), ec);
  if (fs::create_directory(paths.Dir(), ec)) return {};
  if (ec) return tl::make_unexpected(ErrnoError("create " + paths.Dir().string(), ec.value()));
  return Err(ErrorCode::kConflict, fmt::format("lab '{}' exists", paths.lab),
             fmt::format("remove it with: mlnet-lab down --name {}", paths.lab));
}

Result<void> SaveState(const Paths& paths, const State& state) {
  Json j = TopologyToJson(paths, state.topology);
  j["schema"] = "mlnet-lab.state/1";
  j["name"] = paths.lab;
  j["ready"] = state.is_ready;
  j["daemons"] = state.has_daemons;
  j["xdp"] = state.xdp == XdpMode::kOn ? "on" : "off";
  // Written aside and renamed: a reader sees the old state or the new one.
  const fs::path aside = paths.StateFile().string() + ".new";
  std::ofstream file(aside, std::ios::trunc);
  file << j.dump(2) << '\n';
  file.close();
  std::error_code ec;
  if (file) fs::rename(aside, paths.StateFile(), ec);
  if (!file || ec)
    return tl::make_unexpected(ErrnoError("write " + paths.StateFile().string(), ec ? ec.value() : EIO));
  return {};
}

Result<State> LoadState(const Paths& paths) {
  if (auto r = CheckLabName(paths.lab); !r) return tl::make_unexpected(r.error());
  const auto text = ReadFile(paths.StateFile());
  if (!text) {
    return Err(ErrorCode::kUnavailable, fmt::format("there is no lab '{}'", paths.lab),
               fmt::format("start it with: mlnet-lab up --name {}", paths.lab));
  }
  // The file is our own; a damaged one is reported, not trusted.
  try {
    return StateFromJson(paths.lab, Json::parse(*text));
  } catch (const Json::exception& e) {
    return Err(ErrorCode::kProtocol, fmt::format("{} is damaged: {}", paths.StateFile().string(), e.what()),
               fmt::format("remove the lab with: mlnet-lab down --name {}", paths.lab));
  }
}

Result<State> LoadReadyState(const Paths& paths) {
  auto state = LoadState(paths);
  if (state && !state->is_ready) {
    return Err(ErrorCode::kUnavailable,
               fmt::format("lab '{}' is not up: its 'up' is at work or was killed", paths.lab),
               fmt::format("wait for it, or remove it with: mlnet-lab down --name {}", paths.lab));
  }
  return state;
}

Result<Fd> LockLab(const Paths& paths) {
  // No O_CLOEXEC on purpose; StartDaemon closes it.
  Fd fd(open(paths.LockFile().c_str(), O_RDWR | O_CREAT, 0600));
  if (!fd) return tl::make_unexpected(ErrnoError("open " + paths.LockFile().string(), errno));
  const auto deadline = std::chrono::steady_clock::now() + kLockTimeout;
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      return Err(ErrorCode::kConflict, fmt::format("another mlnet-lab is at work on lab '{}'", paths.lab),
                 "wait for it to end");
    }
    poll(nullptr, 0, 5);
  }
  return fd;
}

}  // namespace mlnet::lab
