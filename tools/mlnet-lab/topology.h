// SPDX-License-Identifier: Apache-2.0
// What a lab consists of: hosts, their links, and the switch; from a YAML file, from flags, or both.
// Why: the same file describes the namespaces here and the virtual machines of the VM testbed.
// The format is documented in topology.example.yaml.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mlnet/error.h"

namespace mlnet::lab {

/// Faults of one direction of one link. All 0: none.
struct Faults {
  uint32_t loss_ppm = 0;
  uint32_t duplicate_ppm = 0;
  uint32_t reorder_ppm = 0;
  uint32_t corrupt_ppm = 0;
  uint32_t delay_us = 0;

  bool operator==(const Faults&) const = default;
  bool Any() const { return !(*this == Faults{}); }
  /// True when frames must be held for a while.
  bool NeedsHold() const { return reorder_ppm != 0 || delay_us != 0; }
};

struct Host {
  std::string name{};
  bool is_aggregator = false;
  uint64_t rate_bps = 0;  // 0: unlimited
  std::string rack{};     // reserved: carried through, no effect yet
  std::string address{};  // set by Finish
  std::string mac{};      // set by Finish
  Faults tx{};            // what the host sends
  Faults rx{};            // what the host receives
};

struct Topology {
  std::string name = "lab";
  uint32_t mtu = 1500;
  uint64_t seed = 1;
  bool multicast_snooping = false;
  std::vector<Host> hosts;
};

/// Reads a topology file; kInvalidArgument names file, host and key.
Result<Topology> LoadTopology(const std::string& path);

/// Workers first, then aggregators; gives out addresses; checks names and limits.
Result<Topology> Finish(Topology topology);

/// Lab names are [a-z][a-z0-9_]{0,15}; host names the same with up to 11 characters.
Result<void> CheckLabName(const std::string& name);

}  // namespace mlnet::lab
