// SPDX-License-Identifier: Apache-2.0
// Many seeds on several CPUs: programs and maps belong to a process, and so do the CPU that counts copies and the frames of the last job.
#pragma once

#include <functional>

#include "sim/soak_seed.h"

namespace mlnet::sim {

/// Runs seeds from `first` on in `count` processes, each on a CPU of its own where there are so many: the k-th takes each `count`-th of them.
/// `on_done` hears of each, and says whether there are to be more. Fails the current test when a seed does, or a process.
void RunInProcesses(int count, uint64_t first, const std::function<bool(uint64_t seed, const Figures& figures)>& on_done);

}  // namespace mlnet::sim
