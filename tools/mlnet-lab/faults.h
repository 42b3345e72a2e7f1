// SPDX-License-Identifier: Apache-2.0
// Puts a lab's faults into the kernel: programs on the ports, configuration in their map, and the delay line
// when frames have to be held.
#pragma once

#include "fault/fault.h"
#include "mlnet/error.h"
#include "state.h"

namespace mlnet::lab {

/// How long a frame is held back that later ones shall overtake, on a link without delay.
constexpr uint32_t kReorderHoldUs = 500;

/// Makes the kernel hold what `topology` says. The random sequences and counters of links in `restart` (names;
/// nullptr: all) begin anew. Live: traffic goes on. The ports must be set first (SetPorts).
Result<void> ApplyFaults(const Paths& paths, const Topology& topology,
                         const std::vector<std::string>* restart);

/// Configuration and counters as the kernel has them; all 0 where no fault was ever set.
Result<lab_link> ReadLink(const Paths& paths, size_t link_index, int direction);

}  // namespace mlnet::lab
