// SPDX-License-Identifier: Apache-2.0
// Records as the JSON that operators see.
#pragma once

#include <vector>

#include "control/model.h"
#include "daemon/store.h"

namespace mlnet::daemon {

/// One row of job.list.
control::Json JobSummary(const control::JobView& view);

/// mlnet.job/1; `counters` are those of its ranks and hosts.
control::Json JobDetail(const control::JobView& view, const std::vector<Store::Counters>& counters);

/// Kernel counters of all hosts and totals of all ranks: {verdicts, bytes_in, ..., retransmits, ...}.
control::Json JobTotals(const std::vector<Store::Counters>& counters);

}  // namespace mlnet::daemon
