// SPDX-License-Identifier: Apache-2.0
// The loaded XDP object of this host: its programs and outer maps. One per daemon, attached to any
// number of NICs. Everything is released when it is destroyed, also by SIGKILL, unless it was pinned.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

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
  Program(Program&&) noexcept;
  Program& operator=(Program&&) = delete;
  ~Program();

  /// File descriptor of an outer map by its name in <mlnet/job.h>.
  int MapFd(const char* name) const;
  int ingress_fd() const;
  int egress_fd() const;

  /// Pins maps and programs below `dir`, for bpftool and for the next daemon to find.
  Result<void> Pin(const std::string& dir) const;

  xdp_aggregate* skeleton() const { return skeleton_.get(); }
  const ProgramConfig& config() const { return config_; }

 private:
  struct Destroy {
    void operator()(xdp_aggregate* skeleton) const;
  };
  Program(std::unique_ptr<xdp_aggregate, Destroy> skeleton, ProgramConfig config);

  std::unique_ptr<xdp_aggregate, Destroy> skeleton_;
  ProgramConfig config_;
};

/// Version of libbpf at run time, "1.1.2".
std::string LibbpfVersion();

}  // namespace mlnet::datapath
