// SPDX-License-Identifier: Apache-2.0
#include "control/ring.h"

#include <algorithm>

#include "control/job.h"
#include "control/plan.h"
#include "control/tree.h"

namespace mlnet::control {
namespace {

JobHostRecord& HostIn(JobView& view, const std::string& host) {
  const auto it = std::find_if(view.hosts.begin(), view.hosts.end(), [&](const auto& h) { return h.host == host; });
  if (it != view.hosts.end()) return *it;
  JobHostRecord record;
  record.incarnation = view.job.incarnation;
  record.host = host;
  return view.hosts.emplace_back(record);
}

const MemberRecord& Member(const JobView& view, int rank) {
  return *std::find_if(view.members.begin(), view.members.end(), [&](const auto& m) { return m.rank == rank; });
}

std::vector<int> WithoutPort(const JobView& view) {
  std::vector<int> ranks;
  for (const MemberRecord& m : view.members) {
    if (m.ring_port == 0) ranks.push_back(m.rank);
  }
  return ranks;
}

}  // namespace

bool IsInRing(const JobRecord& job) { return job.ring.began_ms != 0; }

bool MayStartInRing(const JobView& view) {
  const JobRecord& job = view.job;
  if (job.spec.require_mode != kAnyMode || job.spec.root == "server" || view.members.size() > MLNET_CHILDREN_MAX) return false;
  return std::all_of(view.members.begin(), view.members.end(), [](const auto& m) { return m.connected && m.rings; });
}

std::string WhyStartInRing(const JobView& view, uint64_t now_ms) {
  const JobRecord& job = view.job;
  if (job.state != kPreparing || IsInRing(job) || now_ms < job.planned_ms + kServeMs || !MayStartInRing(view)) return "";
  std::string late;
  for (const std::string& host : HostsOf(job.plan)) {
    const auto at = std::find_if(view.hosts.begin(), view.hosts.end(), [&](const auto& h) { return h.host == host; });
    const bool is_ready = at != view.hosts.end() && at->prepared && (at->serving || !AllHostsPrepared(view) || !IsRootOfAny(job.plan, host));
    if (LocalRanks(job.plan, host).empty() && !is_ready) late += (late.empty() ? "" : ", ") + host;
  }
  return late.empty() ? "" : "not ready to sum within " + std::to_string(now_ms - job.planned_ms) + " ms: " + late;
}

void StartInRing(JobView& view, const Plan& plan, const std::string& why, const std::string& token, uint64_t now_ms) {
  JobRecord& job = view.job;
  job.plan = plan;
  job.job_id = plan.job_id;
  job.fan.clear();
  job.fan_why.clear();
  job.state = kPreparing;
  job.planned_ms = now_ms;
  job.ring = {now_ms, why, token};
  view.hosts.clear();  // what they have prepared was for another plan
}

void OpenRing(JobView& view, uint64_t now_ms) {
  JobRecord& job = view.job;
  if (job.state != kPreparing || !IsInRing(job) || !AllHostsPrepared(view)) return;
  job.state = kReady;
  job.ring.began_ms = now_ms;
}

std::vector<std::string> HostsNeeded(const JobRecord& job) { return IsInRing(job) ? WorkerHosts(job.plan) : HostsOf(job.plan); }

bool NeedsHost(const JobRecord& job, const std::string& host) {
  const auto hosts = HostsNeeded(job);
  return std::find(hosts.begin(), hosts.end(), host) != hosts.end();
}

bool CanLose(const JobView& view, const std::string& host) {
  const JobRecord& job = view.job;
  if (job.state != kReady || IsInRing(job) || job.mismatch_ms != 0 || job.spec.require_mode != kAnyMode) return false;
  if (!job.plan.server_host.empty() || !LocalRanks(job.plan, host).empty()) return false;
  // Who has left may hold a result that the others miss.
  return std::all_of(view.members.begin(), view.members.end(), [](const auto& m) { return m.connected && m.rings; });
}

void LoseHost(JobView& view, const std::string& host, const Error& error, const std::string& token, uint64_t now_ms) {
  if (HasEnded(view.job) || !NeedsHost(view.job, host)) return;
  const bool is_beginning = view.job.state == kPreparing && !IsInRing(view.job) && LocalRanks(view.job.plan, host).empty();
  if (is_beginning && MayStartInRing(view)) return;  // those who are left find it gone, and plan without it
  if (!CanLose(view, host) || token.empty()) return Fail(view, error, {}, now_ms);
  view.job.ring = {now_ms, error.message, token};
}

void NoteSilentRoot(JobView& view, const std::string& host, const std::string& root, const Error& error, const std::string& token,
                    uint64_t now_ms) {
  HostIn(view, host).silent_root = root;
  if (root.empty() || IsInRing(view.job)) return;
  const auto workers = WorkerHosts(view.job.plan);
  const bool all_say_so = std::all_of(workers.begin(), workers.end(), [&](const auto& w) { return HostIn(view, w).silent_root == root; });
  if (all_say_so) LoseHost(view, root, error, token, now_ms);
}

bool IsRingOpen(const JobView& view) { return IsInRing(view.job) && WithoutPort(view).empty(); }

std::optional<Error> RingFailure(const JobView& view, uint64_t now_ms) {
  if (!IsInRing(view.job) || view.job.state != kReady || IsRingOpen(view) || now_ms < view.job.ring.began_ms + kRingOpenMs) return std::nullopt;
  return Error{ErrorCode::kRankLost,
               view.job.ring.why + "; " + NamesOf(WithoutPort(view)) + " did not join the ring that was to go on without it within " +
                   std::to_string(now_ms - view.job.ring.began_ms) + " ms",
               "is the process stopped, the host down or cut off"};
}

std::string RingAddress(const Plan& plan, int rank) { return PortOfHost(plan, 0, plan.host_of_rank.at(static_cast<size_t>(rank)))->address; }

Json RingPeersFor(const JobView& view, int rank) {
  const int n = view.job.world_size, next = (rank + 1) % n, previous = (rank + n - 1) % n;
  const Plan& plan = view.job.plan;
  return {{"next", {{"rank", next}, {"host", Member(view, next).host}, {"address", RingAddress(plan, next)}, {"port", Member(view, next).ring_port}}},
          {"previous", {{"rank", previous}, {"host", Member(view, previous).host}}}};
}

}  // namespace mlnet::control
