// SPDX-License-Identifier: Apache-2.0
// The XDP programs on the lab's ports, and with them the segmentation offload of the hosts' NICs.
#pragma once

#include "mlnet/error.h"
#include "state.h"

namespace mlnet::lab {

/// Errors are reported as values; libbpf shall not print them as well.
void SilenceLibbpf();

/// kOn: XDP_PASS on every port, which hosts that run XDP need (frames they send by XDP_TX are lost
/// otherwise); with it every frame on a link is a single frame. kOff: plain ports as TCP peers know them,
/// with segmentation offload, unless the lab has faults. With `corrupt` anywhere, hosts compute real
/// checksums. With `offload`, and while there is no fault, ports of workers are without a program in both modes, and an
/// aggregator's forwards by itself what IsForwardedInXdp allows. Call it again whenever mode or faults change.
Result<void> SetPorts(const Paths& paths, const Topology& topology, XdpMode mode);

}  // namespace mlnet::lab
