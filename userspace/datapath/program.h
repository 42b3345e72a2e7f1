// SPDX-License-Identifier: Apache-2.0
// The loaded XDP object of this host: its programs and outer maps. One per daemon, attached to any
// number of NICs. What was pinned stays when the daemon is killed, for the next one to take over.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "datapath/inner_map.h"
#include "mlnet/error.h"

struct xdp_aggregate;  // the skeleton

namespace mlnet::datapath {

struct ProgramConfig {
  uint16_t port = 0;
  uint32_t slots = 0;  // entries of ml_slots
};

class Program {
 public:
  /// kPermission names the capabilities that are missing; kUnsupported carries the verifier's last words.
  static Result<Program> Load(const ProgramConfig& config);
  /// The same with the maps that an earlier daemon pinned below `dir`, and all that is in them. kConflict names the map
  /// that is not there, or is not as this build and configuration want it.
  static Result<Program> LoadOver(const ProgramConfig& config, const std::string& dir);
  Program(Program&&) noexcept;
  Program& operator=(Program&&) = delete;
  ~Program();

  /// File descriptor of an outer map by its name in <mlnet/job.h>.
  int MapFd(const char* name) const;
  OuterMap Outer(const char* name) const;
  /// False where this took over from a daemon whose job maps have no pins: it was older, or somebody removed them.
  bool found_inner_pins() const { return found_inner_pins_; }
  int ingress_fd() const;
  int egress_fd() const;

  /// Pins maps and programs below `dir`, for bpftool and for the next daemon to find; what is pinned there already gives way.
  /// Maps of jobs are pinned there from then on, below inner/.
  Result<void> Pin(const std::string& dir);

  xdp_aggregate* skeleton() const { return skeleton_.get(); }
  const ProgramConfig& config() const { return config_; }

 private:
  struct Destroy {
    void operator()(xdp_aggregate* skeleton) const;
  };
  using Skeleton = std::unique_ptr<xdp_aggregate, Destroy>;
  Program(Skeleton skeleton, ProgramConfig config);
  static Result<Skeleton> Open(const ProgramConfig& config);
  static Result<Program> Load(Skeleton skeleton, const ProgramConfig& config);

  Skeleton skeleton_;
  ProgramConfig config_;
  std::string inner_pins_;  // empty: not pinned
  bool found_inner_pins_ = true;
};

/// Version of libbpf at run time, "1.1.2".
std::string LibbpfVersion();

}  // namespace mlnet::datapath
