// SPDX-License-Identifier: Apache-2.0
// The XDP programs on the lab's ports, and with them the segmentation offload of the hosts' NICs.
#pragma once

#include "mlnet/error.h"
#include "state.h"

namespace mlnet::lab {

/// Errors are reported as values; libbpf shall not print them as well.
void SilenceLibbpf();

/// kOn: XDP_PASS on every port, which hosts that run XDP need (frames they send by XDP_TX are lost otherwise).
/// kOff: no program; the hosts' NICs get segmentation offload back, as plain TCP peers need it.
Result<void> SetPorts(const Paths& paths, const Topology& topology, XdpMode mode);

/// With faults anywhere in the lab, a frame is a frame on every link: no segmentation offload and no merging,
/// and with `corrupt` real checksums. Without faults the offloads are left to the kernel.
Result<void> SetOffloads(const Paths& paths, const Topology& topology);

}  // namespace mlnet::lab
