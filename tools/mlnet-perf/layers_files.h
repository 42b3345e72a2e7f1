// SPDX-License-Identifier: Apache-2.0
// What passes between `mlnet-lab layers` and its ranks: the plan beside the spec, and rows by name.
#pragma once

#include <string>

#include "mlnet-perf/spec.h"

namespace mlnet::perf {

inline std::string PlanFile(const Spec& spec) { return spec.dir + "/layers.json"; }

/// Of the rows' times_ns, one for each timed call or iteration: how long, or when by CLOCK_MONOTONIC.
inline constexpr const char* kRateRow = "rate";
inline constexpr const char* kStartRow = "start";
inline constexpr const char* kEndRow = "end";
inline constexpr const char* kFirstWaitRow = "first wait";
/// The counters of all; its times_ns are the collectives of each traffic class.
inline constexpr const char* kTotalRow = "total";

}  // namespace mlnet::perf
