// SPDX-License-Identifier: Apache-2.0
// What a lab consists of: hosts, their links, and the switch; from a YAML file, from flags, or both.
// Why: the same file describes the namespaces here and the virtual machines of the VM testbed.
// The format is documented in topology.example.yaml.
#pragma once

#include <cstdint>
#include <optional>
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
  std::string rack{};     // empty: plugged into the core
  std::string address{};  // set by Finish
  std::string mac{};      // set by Finish
  Faults tx{};            // what the host sends
  Faults rx{};            // what the host receives
};

/// A switch of its own between its hosts and the core.
struct Rack {
  std::string name{};
  std::optional<uint64_t> up_bps{};    // towards the core; set by Finish; 0: unlimited
  std::optional<uint64_t> down_bps{};  // the same
  Faults tx{};                         // what the rack sends to the core
  Faults rx{};
};

struct Topology {
  std::string name = "lab";
  uint32_t mtu = 1500;
  uint64_t seed = 1;
  bool multicast_snooping = false;
  bool priorities = false;  // shaped links send the highest IP precedence first; else in the order of arrival
  uint32_t queue_kib = 0;  // in front of a port with a rate; 0: what all pools need
  uint32_t mark_kib = 0;   // ECN: from here on such a queue marks what can be marked; 0: never
  bool offload = false;     // hosts of ranks keep their segmentation offload, and so cannot sum; see ports.h
  bool ipv6 = false;  // hosts have IPv6 addresses only; else IPv4 only
  double oversubscription = 0;  // of an uplink without a rate: its hosts' rates together, divided by this; 0: no limit
  std::vector<Rack> racks;
  std::vector<Host> hosts;
};

/// Frames of aggregators need not pass the bridge: no link has a rate or a fault that they must meet.
bool IsForwardedInXdp(const Topology& topology);

/// What faults and shapers know of a link: from a host to its switch, or from a rack to the core.
struct Link {
  std::string name;
  uint64_t up_bps = 0;
  uint64_t down_bps = 0;
  Faults tx;
  Faults rx;
};
/// Hosts in their order, then racks; the index in this list is that of fault.h.
std::vector<Link> LinksOf(const Topology& topology);

/// A topology file's text; kInvalidArgument names `source`, host and key.
Result<Topology> ParseTopology(const std::string& text, const std::string& source);
Result<Topology> LoadTopology(const std::string& path);

/// Workers first, then aggregators; gives out addresses; works out the racks; checks names and limits.
Result<Topology> Finish(Topology topology);

/// Lab names are [a-z][a-z0-9_]{0,15}; host and rack names the same with up to 11 characters.
Result<void> CheckLabName(const std::string& name);

/// Hosts with ranks, in the topology's order.
std::vector<Host> WorkersOf(const Topology& topology);

}  // namespace mlnet::lab
