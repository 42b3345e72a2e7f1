// SPDX-License-Identifier: Apache-2.0
// Builds the lab's network: one namespace per host, one for all switches, and each link's hop in between.
// Why a hop: frames sent by XDP_TX or redirect never see the qdisc of the sending NIC. They do become
// sk_buffs at the other end of the veth pair, in the switch namespace, so both directions are shaped there.
// DESIGN.md draws the path and has the measurements.
#pragma once

#include <cstdint>
#include <string>

#include "fault/fault.h"
#include "mlnet/error.h"
#include "state.h"

namespace mlnet::lab {

/// The port of a host on its switch or of a rack on the core, and the shaper of what host or rack sends.
std::string PortName(const std::string& link);
std::string ShaperName(const std::string& link);

/// Interface indexes in the switch namespace are chosen, not found: programs and tools compute them.
constexpr int kPortIndexBase = LAB_PORT_IFINDEX;
constexpr int kShaperIndexBase = 200;
constexpr int kBridgeIndexBase = 500;  // of the racks; the core's is 2
constexpr int kInnerIndexBase = 600;   // the rack's end of its uplink

struct Shaping {
  uint64_t burst_bytes = 0;
  uint64_t queue_bytes = 0;
};
/// Burst and queue of a link of `rate_bps` in a lab of `num_hosts`.
Shaping ShapingFor(uint64_t rate_bps, size_t num_hosts, uint32_t mtu);

/// Makes namespaces, links, addresses and shapers. What exists after a failure is for TearDown.
Result<void> BuildNetwork(const Paths& paths, const Topology& topology);

/// Names of kernel features the lab needs and this kernel lacks; for the message after a failed build.
std::vector<std::string> MissingKernelFeatures();

}  // namespace mlnet::lab
