// SPDX-License-Identifier: Apache-2.0
// What a daemon does with the records that it reads.
#pragma once

#include <vector>

#include "daemon/store.h"

namespace mlnet::fuzz {

/// What follows from a record depends on it alone, so each is used once while this lives, an input; and PlannedJob, which most inputs have
/// in them, once at all. It leaves nothing allocated, which libFuzzer would take for a leak, and look for at length.
class Input {
 public:
  Input();
  ~Input();
};

/// All that follows from a job: table entries of each host, what its ranks are told, what is shown, what a rank that joins, leaves or is
/// lost changes. Records that come of it are right as well.
void Use(const control::JobView& view);
/// A job is planned on these hosts.
void Use(const std::vector<control::HostRecord>& hosts);
/// What all daemons conclude from all jobs and hosts.
void Use(const daemon::Snapshot& snapshot);
void Use(const control::JobView& view, const std::vector<daemon::Store::Counters>& counters);

/// A job that runs on two hosts of ranks below one that only sums.
control::JobView PlannedJob();

}  // namespace mlnet::fuzz
