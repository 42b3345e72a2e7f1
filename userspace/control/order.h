// SPDX-License-Identifier: Apache-2.0
// Jobs that meet on links: from the records to what each job's ranks are granted, and what is noted of a job's
// progress so that all daemons decide alike.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "control/model.h"
#include "plan/job_order.h"

namespace mlnet::control {

inline constexpr uint64_t kMovingMs = 2000;  // a job that had no result for so long leaves the links to others

/// What the ranks of a job may use. The default: everything.
struct Grant {
  uint32_t window = 0;   // packets on their way; 0: no limit
  uint64_t gap_us = 0;   // from an answer to the next packet
  bool waits = false;    // another job goes first
  int dscp = -1;         // -1: each class has its own
  bool operator==(const Grant&) const = default;
};
Grant GrantOf(const plan::LinkShare& share);

/// By name, of the jobs that are transferring at `now_ms`.
std::map<std::string, plan::LinkShare> SharesOf(const std::vector<JobView>& jobs, double ageing, uint64_t now_ms);

/// What the host of rank 0 has seen of a job.
struct Sight {
  uint64_t work_bytes = 0;  // as the rank said; 0: it did not
  uint64_t done_bytes = 0;
  bool is_moving = false;
};

/// Whether the record should say something else about the job by now, and what. `share` is null while it does not
/// move. Progress alone is noted in steps of a sixteenth.
bool NoteProgress(JobRecord& job, const Sight& sight, const plan::LinkShare* share, double ageing, uint64_t now_ms);

}  // namespace mlnet::control
