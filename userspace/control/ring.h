// SPDX-License-Identifier: Apache-2.0
// What becomes of a job that loses a host: where that host only sums, its ranks can go on without any, in a ring of their
// own (worker/ring); else the job fails. The same where a job that begins finds nobody to sum it. Pure functions over the job's records; each is one transaction.
//
//   a host is lost --all may ring--> ring (kernels barred, ranks open ports) --all ports known--> ranks connect
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "control/model.h"
#include "mlnet/error.h"

namespace mlnet::control {

inline constexpr uint64_t kRingOpenMs = 5'000;  // for all ranks to open their ports
inline constexpr const char* kAnyMode = "any";
inline constexpr const char* kKernelMode = "kernel";

inline constexpr uint64_t kServeMs = 5'000;     // for aggregators to be ready, once the job has its plan

/// Also while it is being prepared for the ring.
bool IsInRing(const JobRecord& job);
/// Whether a job that begins may do so in the ring.
bool MayStartInRing(const JobView& view);
/// Of a job with a plan that is not ready: why its aggregators are not to be waited for any longer; "": they are, or the job may not
/// begin without them.
std::string WhyStartInRing(const JobView& view, uint64_t now_ms);
/// `plan`: MakeRingPlan's, numbered.
void StartInRing(JobView& view, const Plan& plan, const std::string& why, const std::string& token, uint64_t now_ms);
/// All hosts of ranks are prepared: the ranks may come.
void OpenRing(JobView& view, uint64_t now_ms);
/// Whether the job still stands on `host`: once it is in the ring, only hosts with ranks matter.
bool NeedsHost(const JobRecord& job, const std::string& host);
std::vector<std::string> HostsNeeded(const JobRecord& job);

/// Whether the job would go on without `host`.
bool CanLose(const JobView& view, const std::string& host);
/// `host` is lost: the ring begins, or the job fails with `error`. `token`: new, for the ring.
void LoseHost(JobView& view, const std::string& host, const Error& error, const std::string& token, uint64_t now_ms);

/// `host` has not heard of the root of a tree for too long; "": it has. The root counts as lost when all hosts of ranks say
/// so: of one alone nobody knows whether it is itself cut off.
void NoteSilentRoot(JobView& view, const std::string& host, const std::string& root, const Error& error, const std::string& token,
                    uint64_t now_ms);

/// Whether all ranks listen.
bool IsRingOpen(const JobView& view);
/// Why the ring does not come about; nullopt: it does, or has time.
std::optional<Error> RingFailure(const JobView& view, uint64_t now_ms);
/// What rank `rank` is told of its neighbours. REQUIRES: IsRingOpen.
Json RingPeersFor(const JobView& view, int rank);
/// Where a rank listens.
std::string RingAddress(const Plan& plan, int rank);

}  // namespace mlnet::control
