// SPDX-License-Identifier: Apache-2.0
// What packets of a job are marked with: its ceiling from the operator, its turn from the planner, and below both of them
// the traffic class. The kernel enforces it on what ranks send and on what an aggregator emits.
#pragma once

#include <array>
#include <cstdint>

#include "control/order.h"
#include "mlnet/job.h"

namespace mlnet::control {

inline constexpr int kDscpMax = 63;
inline constexpr int kLowerEffort = 1;  // DSCP of what lets all others go first (RFC 8622)

/// DSCP by traffic class.
using DscpTable = std::array<uint8_t, MLNET_CLASSES_MAX>;
/// Best effort, then CS1 to CS7: more urgent classes have a higher precedence.
inline constexpr DscpTable kDscpDefault = {0, 8, 16, 24, 32, 40, 48, 56};

using Marks = std::array<mlnet_mark, MLNET_CLASSES_MAX>;

/// By traffic class. One above `ceiling` counts as the ceiling; while another job goes first, all wait.
Marks MarksOf(const DscpTable& dscp, uint32_t ceiling, const Grant& grant);

bool IsSame(const Marks& a, const Marks& b);

}  // namespace mlnet::control
