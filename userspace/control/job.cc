// SPDX-License-Identifier: Apache-2.0
#include "control/job.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/errno_error.h"
#include "control/plan.h"
#include "control/ring.h"
#include "mlnet/limits.h"

namespace mlnet::control {
namespace {

std::string Quoted(const JobView& view) { return "job '" + view.job.name + "'"; }

MemberRecord* FindMember(JobView& view, int rank) {
  const auto it = std::find_if(view.members.begin(), view.members.end(), [&](const auto& m) { return m.rank == rank; });
  return it == view.members.end() ? nullptr : &*it;
}

std::vector<int> ConnectedRanks(const JobView& view) {
  std::vector<int> ranks;
  for (const MemberRecord& m : view.members) {
    if (m.connected) ranks.push_back(m.rank);
  }
  return ranks;
}

bool HasServer(const JobView& view) { return view.job.spec.root == "server"; }

std::vector<int> MissingRanks(const JobView& view) {
  std::vector<int> missing;
  for (int rank = HasServer(view) ? kServerRank : 0; rank < view.job.world_size; ++rank) {
    const bool is_in = std::any_of(view.members.begin(), view.members.end(),
                                   [&](const auto& m) { return m.rank == rank && m.connected; });
    if (!is_in) missing.push_back(rank);
  }
  return missing;
}

void Reopen(JobView& view) {
  JobRecord fresh;
  fresh.name = view.job.name;
  fresh.incarnation = view.job.incarnation + 1;
  fresh.declared = view.job.declared;
  fresh.spec = view.job.spec;
  fresh.job_id = view.job.job_id;
  const int full = view.job.shrunk.world_size_full;
  if (fresh.declared) fresh.world_size = full != 0 ? full : view.job.world_size;
  // Kept for the deadline's message: what ended the previous attempt is often why ranks are missing now.
  fresh.reason = view.job.reason;
  fresh.failed_ms = view.job.failed_ms;
  view = JobView{fresh, {}, {}};
}

Result<void> CheckEnded(const JobView& view, const JoinRequest& request, uint64_t now_ms) {
  const JobRecord& job = view.job;
  if (job.deleted) return Err(ErrorCode::kConflict, Quoted(view) + " is being deleted", "use another name");
  const bool was_told = std::any_of(view.members.begin(), view.members.end(),
                                    [&](const auto& m) { return m.rank == request.rank; });
  if (job.state == kFailed && job.failed_joining && !was_told && now_ms < job.failed_ms + kLateJoinMs) {
    return tl::make_unexpected(FailureOf(job));
  }
  if (!IsConnected(view)) return {};
  return Err(ErrorCode::kConflict,
             Quoted(view) + " is " + job.state + (job.reason.empty() ? "" : " (" + job.reason + ")") +
                 ", still connected: " + NamesOf(ConnectedRanks(view)),
             "wait for them to end, or use another name");
}

Result<void> CheckNumbers(const JobView& view, const JoinRequest& request) {
  if (request.world_size < 1 || request.world_size > kRanksMax) {
    return Err(ErrorCode::kInvalidArgument,
               "world_size is " + std::to_string(request.world_size) + ", must be 1 to " + std::to_string(kRanksMax));
  }
  if (request.rank == kServerRank) {
    if (HasServer(view)) return {};
    return Err(ErrorCode::kInvalidArgument, Quoted(view) + " has no place for a server", "mlnetctl job create NAME --root server");
  }
  if (request.rank < 0 || request.rank >= request.world_size) {
    return Err(ErrorCode::kInvalidArgument, "rank " + std::to_string(request.rank) + " is not within 0.." +
                                                std::to_string(request.world_size - 1));
  }
  return {};
}

Error WorldSizeError(const JobView& view, const JoinRequest& request) {
  const JobRecord& job = view.job;
  const std::string others = view.members.empty() ? "mlnetctl job create" : Who(view.members.front());
  return Error{ErrorCode::kMismatch,
               NamesOf({request.rank}) + " (host " + request.host + ", pid " + std::to_string(request.pid) +
                   ") joined " + Quoted(view) + " with world_size " + std::to_string(request.world_size) + ", but " + others +
                   " said " + std::to_string(job.world_size),
               "start all ranks with the same world_size"};
}

Result<void> JoinRunning(const JobView& view, const JoinRequest& request) {
  if (request.world_size != view.job.world_size) return tl::make_unexpected(WorldSizeError(view, request));
  return Err(ErrorCode::kConflict, Quoted(view) + " is " + view.job.state + " with all its ranks; " +
                                       NamesOf({request.rank}) + " is taken",
             "use another job name, or end the running one first");
}

}  // namespace

std::string NamesOf(const std::vector<int>& ranks) {
  const auto num_servers = std::count(ranks.begin(), ranks.end(), kServerRank);
  const auto num_ranks = static_cast<std::ptrdiff_t>(ranks.size()) - num_servers;
  if (num_ranks == 0) return num_servers > 0 ? "the server" : "ranks";
  std::string text = num_ranks == 1 ? "rank" : "ranks";
  const char* separator = " ";
  for (const int rank : ranks) {
    if (rank != kServerRank) text += std::exchange(separator, ", ") + std::to_string(rank);
  }
  return num_servers > 0 ? "the server and " + text : text;
}

std::string Who(const MemberRecord& member) {
  return NamesOf({member.rank}) + " (host " + member.host + ", pid " + std::to_string(member.pid) + ")";
}

bool IsActive(const JobRecord& job) { return job.state == kPreparing || job.state == kReady; }
bool HasEnded(const JobRecord& job) { return job.state == kFailed || job.state == kClosed; }

bool IsConnected(const JobView& view) {
  return std::any_of(view.members.begin(), view.members.end(), [](const auto& m) { return m.connected; });
}

bool IsForgotten(const JobView& view) {
  if (view.job.state == kJoining) return view.members.empty() && (view.job.deleted || !view.job.declared);
  return view.job.deleted && HasEnded(view.job) && !IsConnected(view);
}

Error FailureOf(const JobRecord& job) {
  return Error{ErrorCodeFromName(job.code).value_or(ErrorCode::kSystem), job.reason, job.hint};
}

Result<void> Join(JobView& view, const JoinRequest& request, uint64_t now_ms) {
  if (auto ok = CheckNumbers(view, request); !ok) return ok;
  if (HasEnded(view.job)) {
    if (auto ok = CheckEnded(view, request, now_ms); !ok) return ok;
    Reopen(view);
  }
  if (IsActive(view.job)) return JoinRunning(view, request);
  JobRecord& job = view.job;
  if (job.world_size == 0) job.world_size = request.world_size;
  if (job.world_size != request.world_size) {
    const Error error = WorldSizeError(view, request);
    // Told like everybody else: its next attempt opens a new incarnation.
    if (FindMember(view, request.rank) == nullptr) {
      view.members.push_back({job.incarnation, request.rank, request.host, request.pid, false, false, 0, ""});
    }
    Fail(view, error, {request.rank}, now_ms);
    return tl::make_unexpected(error);
  }
  if (const MemberRecord* taken = FindMember(view, request.rank)) {
    return Err(ErrorCode::kConflict, Quoted(view) + " already has " + Who(*taken), "give every process its own rank");
  }
  if (view.members.empty()) {
    job.opened_ms = now_ms;
    job.uid = request.uid;
  }
  view.members.push_back({job.incarnation, request.rank, request.host, request.pid, true, false, 0, "", request.pings, request.uid, request.rings, 0});
  std::sort(view.members.begin(), view.members.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return {};
}

void MemberGone(JobView& view, int rank, bool orderly, uint64_t now_ms) {
  MemberRecord* member = FindMember(view, rank);
  if (member == nullptr || !member->connected) return;
  if (view.job.state == kJoining) {  // nothing depends on it yet; another process may take the rank
    std::erase_if(view.members, [&](const auto& m) { return m.rank == rank; });
    if (view.members.empty() && !view.job.declared) view.job.world_size = 0;
    return;
  }
  member->connected = false;
  member->left = orderly;
  if (HasEnded(view.job)) return;
  if (!orderly) {
    Fail(view, Error{ErrorCode::kRankLost, Who(*member) + " of " + Quoted(view) + " exited without leaving", "see its log"},
         {rank}, now_ms);
    return;
  }
  if (!IsConnected(view)) view.job.state = kClosed;
}

void JoinTimedOut(JobView& view, int rank, uint64_t waited_ms, uint64_t now_ms) {
  if (view.job.state == kPreparing) {
    std::string hosts;
    for (const std::string& host : WorkerHosts(view.job.plan)) {
      const bool done = std::any_of(view.hosts.begin(), view.hosts.end(),
                                    [&](const auto& h) { return h.host == host && h.prepared; });
      if (!done) hosts += (hosts.empty() ? "" : ", ") + host;
    }
    Fail(view, Error{ErrorCode::kTimeout, Quoted(view) + " has all ranks, but its hosts were not ready after " +
                     std::to_string(waited_ms) + " ms; waiting for: " + (hosts.empty() ? NamesOfAggregators(view.job.plan) : hosts),
                     "see mlnetd's log there"}, {}, now_ms);
    return;
  }
  if (view.job.state != kJoining) return;
  const std::vector<int> missing = MissingRanks(view);
  std::string text = "waiting for " + NamesOf(missing) + " of " + Quoted(view) + ": " + NamesOf({rank}) +
                     " gave up after " + std::to_string(waited_ms) + " ms";
  if (!view.job.reason.empty()) text += "; the previous attempt ended with: " + view.job.reason;
  Fail(view, Error{ErrorCode::kTimeout, text, "start the missing ranks, or join with a longer timeout"}, missing, now_ms);
  // Only a contradiction outlives the attempt; who comes later starts afresh.
  view.job.failed_joining = false;
}

void Fail(JobView& view, const Error& error, std::vector<int> ranks, uint64_t now_ms) {
  JobRecord& job = view.job;
  if (HasEnded(job)) return;
  // Ranks that go on have been in the job before.
  job.failed_joining = job.state == kJoining && job.shrunk.from == 0;
  job.state = kFailed;
  job.failed_ms = now_ms;
  job.code = ErrorCodeName(error.code);
  job.reason = error.message;
  job.hint = error.hint;
  job.ranks = std::move(ranks);
  if (!job.failed_joining) return;
  // Nobody has anything of this job yet: the answer to join is the end of the membership.
  for (MemberRecord& member : view.members) member.connected = false;
}

bool IsFull(const JobView& view) {
  return view.job.state == kJoining && view.job.world_size > 0 &&
         view.members.size() == static_cast<size_t>(view.job.world_size + (HasServer(view) ? 1 : 0));
}

bool AllHostsPrepared(const JobView& view) {
  std::set<std::string> prepared;
  for (const JobHostRecord& host : view.hosts) {
    if (host.prepared) prepared.insert(host.host);
  }
  const auto hosts = HostsNeeded(view.job);
  return std::all_of(hosts.begin(), hosts.end(), [&](const auto& h) { return prepared.contains(h); });
}

bool MismatchIsRipe(const JobView& view, uint64_t now_ms) {
  if (view.job.mismatch_ms == 0 || HasEnded(view.job)) return false;
  const bool all_said = std::all_of(view.members.begin(), view.members.end(),
                                    [](const auto& m) { return !m.connected || !m.collective.empty(); });
  return all_said || now_ms >= view.job.mismatch_ms + kDescribeWaitMs;
}

Error MismatchError(const JobView& view) {
  std::string text = "ranks of " + Quoted(view) + " called different collectives";
  const char* separator = ": ";
  for (const MemberRecord& m : view.members) {
    if (!m.connected && m.collective.empty()) continue;
    text += separator + (NamesOf({m.rank}) + " " + (m.collective.empty() ? "did not say" : m.collective));
    separator = "; ";
  }
  return Error{ErrorCode::kMismatch, text, "issue the same collectives in the same order on all ranks"};
}

}  // namespace mlnet::control
