// SPDX-License-Identifier: Apache-2.0
// The program's counters, summed over the CPUs.
#pragma once

#include <cstdint>

#include "datapath/program.h"
#include "mlnet/job.h"

namespace mlnet::datapath {

/// `id` 0: packets that no job was found for.
Result<mlnet_stats> ReadStats(const Program& program, uint32_t id);
Result<void> ClearStats(const Program& program, uint32_t id);
Result<mlnet_link> ReadLink(const Program& program, uint32_t index);

/// a += b, counter by counter.
void AddStats(mlnet_stats& a, const mlnet_stats& b);

}  // namespace mlnet::datapath
