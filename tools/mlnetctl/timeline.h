// SPDX-License-Identifier: Apache-2.0
// From what mlnetd gathered of a running job to a timeline in Chrome's trace format (https://ui.perfetto.dev, chrome://tracing).
//   a process "rank N": each collective from the call to its last result, on a row of its traffic class
//   a process "sums of HOST": the same collectives, from the first to the last sum that its kernel completed
// Times are CLOCK_MONOTONIC of the first host, in microseconds.
#pragma once

#include <string>
#include <vector>

#include "rpc/message.h"

namespace mlnet::ctl {

using Json = nlohmann::json;

/// What one host knows: {host, name (of the job), clock_offset_ns, rows [as trace.take answers], lost}.
struct Timeline {
  std::vector<Json> hosts;
  Json others = Json::array();  // events that something else recorded, such as mlnet.schedule(trace=True)
};

/// Adds a file that RenderTimeline or mlnet.trace.save made; kInvalidArgument says what it is instead.
Result<void> AddToTimeline(Timeline& timeline, const Json& file);

/// {traceEvents, displayTimeUnit, otherData, mlnet: what AddToTimeline reads again}.
Json RenderTimeline(const Timeline& timeline);

}  // namespace mlnet::ctl
