// SPDX-License-Identifier: Apache-2.0
// Holds frames for a time and gives them back: a process of the lab with one TAP per direction of each link.
// Why a process: no qdisc of the kernels the lab must run on (no netem) delays a frame, and a BPF program
// cannot keep one. Only frames that are to be held take this way; DESIGN.md has the measurements.
#pragma once

#include "mlnet/error.h"
#include "state.h"

namespace mlnet::lab {

/// Starts the lab's delay line unless it runs, and waits until its TAPs are there.
Result<void> StartDelayLine(const Paths& paths);
/// Ends it; frames it holds are lost.
void StopDelayLine(const Paths& paths);

/// What that process does, in the switch namespace, until SIGTERM.
Result<void> RunDelayLine(const Paths& paths, size_t num_links);

}  // namespace mlnet::lab
