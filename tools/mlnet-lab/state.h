// SPDX-License-Identifier: Apache-2.0
// Where a lab keeps what it knows about itself: /run/mlnet-lab/NAME/. All names derive from the lab's and the
// host's name, so that `down` finds everything even when the state file was never finished.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/fd.h"
#include "mlnet/error.h"
#include "topology.h"

namespace mlnet::lab {

using Json = nlohmann::json;

struct Paths {
  explicit Paths(std::string lab_name) : lab(std::move(lab_name)) {}

  std::string lab;
  std::filesystem::path Dir() const { return std::filesystem::path("/run/mlnet-lab") / lab; }
  std::filesystem::path StateFile() const { return Dir() / "state.json"; }
  std::filesystem::path LockFile() const { return Dir() / "lock"; }
  std::filesystem::path Store() const { return Dir() / "store.db"; }
  std::filesystem::path HostDir(const std::string& host) const { return Dir() / host; }
  std::filesystem::path Socket(const std::string& host) const { return HostDir(host) / "mlnetd.sock"; }
  std::filesystem::path Config(const std::string& host) const { return HostDir(host) / "mlnetd.toml"; }
  std::filesystem::path Log(const std::string& host) const { return HostDir(host) / "mlnetd.log"; }
  std::filesystem::path Pidfile(const std::string& host) const { return HostDir(host) / "mlnetd.pid"; }
  /// Logs of an `up` that failed, kept until the next `up` or `down` of this name.
  std::filesystem::path FailedDir() const {
    return std::filesystem::path("/run/mlnet-lab") / (lab + ".failed");
  }

  /// ml-LAB-HOST; the switch is the host "switch".
  std::string NetnsPrefix() const { return "ml-" + lab + "-"; }
  std::string Netns(const std::string& host) const { return NetnsPrefix() + host; }
  std::string NetnsFile(const std::string& host) const { return "/run/netns/" + Netns(host); }
  /// mlnetd's instance name; its pins are below kPinRoot/INSTANCE.
  std::string Instance(const std::string& host) const { return lab + "-" + host; }
  std::filesystem::path FaultPins() const { return std::filesystem::path(kBpffs) / "mlnet-lab" / lab; }

  static constexpr const char* kBpffs = "/sys/fs/bpf";
  static constexpr const char* kPinRoot = "/sys/fs/bpf/mlnet";
  static constexpr const char* kSwitch = "switch";
};

enum class XdpMode { kOn, kOff };

struct State {
  Topology topology;
  bool is_ready = false;  // false: `up` is at work, or died
  bool has_daemons = true;
  XdpMode xdp = XdpMode::kOn;
};

/// Creates the lab's folder; kConflict when there is one already.
Result<void> CreateDir(const Paths& paths);
Result<void> SaveState(const Paths& paths, const State& state);
/// kUnavailable when there is no such lab.
Result<State> LoadState(const Paths& paths);
/// As LoadState, and kUnavailable unless `up` has finished.
Result<State> LoadReadyState(const Paths& paths);

/// Exclusive lock of the lab, held while the descriptor lives; kConflict when another process has it. The
/// programs that this one runs inherit it: what a killed `up` had started still counts as at work until it
/// ends.
Result<Fd> LockLab(const Paths& paths);

Json FaultsToJson(const Faults& faults);
/// The host's entry in `mlnet-lab.status/1`, without what is found out live.
Json HostToJson(const Paths& paths, const Host& host);
/// The rack's, the same.
Json RackToJson(const Topology& topology, const Rack& rack);
Json TopologyToJson(const Paths& paths, const Topology& topology);

}  // namespace mlnet::lab
