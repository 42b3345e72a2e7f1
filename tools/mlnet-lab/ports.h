// SPDX-License-Identifier: Apache-2.0
// The XDP programs on the lab's ports, and with them the segmentation offload of the hosts' NICs.
#pragma once

#include "mlnet/error.h"
#include "state.h"

namespace mlnet::lab {

/// Errors are reported as values; libbpf shall not print them as well.
void SilenceLibbpf();

/// kOn: hosts may run XDP; frames they send by XDP_TX or redirect arrive, and links carry single frames.
/// kOff: plain ports as TCP peers know them, with segmentation offload. With `corrupt` anywhere, hosts
/// compute real checksums. Call it again whenever mode or faults change.
Result<void> SetPorts(const Paths& paths, const Topology& topology, XdpMode mode);

}  // namespace mlnet::lab
