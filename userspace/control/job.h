// SPDX-License-Identifier: Apache-2.0
// The life of a job as pure functions over its records:
//
//   joining --all ranks in, planned--> preparing --all hosts ready--> ready --all left--> closed
//      \______________________________failed (a reason, for everyone)____/
//
// A name that is closed, or failed and abandoned, can be joined again: a new incarnation, a new epoch.
#pragma once

#include <string>
#include <vector>

#include "control/model.h"
#include "mlnet/error.h"

namespace mlnet::control {

inline constexpr uint64_t kLateJoinMs = 2000;     // a rank that comes this late still hears of the failure
inline constexpr uint64_t kDescribeWaitMs = 2000;  // ranks have this long to say what they are calling: busy ones need it

struct JoinRequest {
  int rank = 0;
  int world_size = 0;
  std::string host;
  int pid = 0;
  uint32_t uid = 0;
  bool pings = false;  // it will show the nodes above that it lives
  bool rings = false;  // it can go on in a ring without a host that sums, and may
};

/// Adds the rank, opening a new incarnation where the name is free again. An error is for this rank;
/// the job may have failed for all because of it (look at view.job.state).
Result<void> Join(JobView& view, const JoinRequest& request, uint64_t now_ms);

/// The rank's connection is gone: `orderly` after leave.
void MemberGone(JobView& view, int rank, bool orderly, uint64_t now_ms);

/// A waiting rank's deadline passed: the job fails for all that wait, naming who is missing.
void JoinTimedOut(JobView& view, int rank, uint64_t waited_ms, uint64_t now_ms);

/// Ends a job that has not ended yet.
void Fail(JobView& view, const Error& error, std::vector<int> ranks, uint64_t now_ms);

/// Whether all ranks are in and it is time to plan.
bool IsFull(const JobView& view);
bool AllHostsPrepared(const JobView& view);
/// Everything the ranks said about a mismatch is in, or they had their time.
bool MismatchIsRipe(const JobView& view, uint64_t now_ms);
Error MismatchError(const JobView& view);

bool IsActive(const JobRecord& job);  // preparing or ready: hosts hold resources for it
bool HasEnded(const JobRecord& job);  // failed or closed
bool IsConnected(const JobView& view);
/// Nobody will ask for it again: deleted and left, or joined by ranks that all went away before it began.
bool IsForgotten(const JobView& view);
Error FailureOf(const JobRecord& job);

/// "rank 1", "ranks 1, 3".
std::string NamesOf(const std::vector<int>& ranks);
/// "rank 1 (host w2, pid 812)".
std::string Who(const MemberRecord& member);

}  // namespace mlnet::control
