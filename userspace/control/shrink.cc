// SPDX-License-Identifier: Apache-2.0
#include "control/shrink.h"

#include <algorithm>
#include <string>
#include <utility>

#include "control/job.h"

namespace mlnet::control {
namespace {

// Who is named by a failure of another kind (a timeout, a mismatch) is there and says so.
bool IsCalledLost(const JobRecord& job, int rank) {
  return job.code == ErrorCodeName(ErrorCode::kRankLost) && std::find(job.ranks.begin(), job.ranks.end(), rank) != job.ranks.end();
}

bool IsCandidate(const JobView& view, const MemberRecord& member) { return member.connected && !IsCalledLost(view.job, member.rank); }

MemberRecord* Find(JobView& view, int rank) {
  const auto it = std::find_if(view.members.begin(), view.members.end(), [&](const auto& m) { return m.rank == rank; });
  return it == view.members.end() ? nullptr : &*it;
}

bool IsIn(const std::vector<MemberRecord>& members, const std::string& host) {
  return std::any_of(members.begin(), members.end(), [&](const auto& m) { return m.host == host; });
}

// Besides those that the failure names already.
void NameLost(ShrinkRecord& shrunk, const JobRecord& failed, const MemberRecord& member) {
  shrunk.lost.push_back(member.rank);
  if (IsCalledLost(failed, member.rank) || failed.shrunk.given_up.find(Who(member)) != std::string::npos) return;
  shrunk.why += "; " + Who(member) + (member.left ? " left" : " is gone");
}

JobRecord NextLife(const JobRecord& failed, uint64_t now_ms) {
  JobRecord next;
  next.name = failed.name;
  next.incarnation = failed.incarnation + 1;
  next.declared = failed.declared;
  next.spec = failed.spec;
  next.job_id = failed.job_id;
  next.uid = failed.uid;
  next.opened_ms = now_ms;
  next.shrunk.from = failed.incarnation;
  next.shrunk.world_size_full = failed.shrunk.world_size_full != 0 ? failed.shrunk.world_size_full : failed.world_size;
  next.shrunk.lost_hosts = failed.shrunk.lost_hosts;
  return next;
}

}  // namespace

Result<void> CheckGoesOn(const JobView& view, int rank) {
  const JobRecord& job = view.job;
  if (job.deleted) return Err(ErrorCode::kConflict, "job '" + job.name + "' is being deleted");
  if (job.spec.root == "server") {
    return Err(ErrorCode::kUnsupported, "job '" + job.name + "' has a server: it cannot go on with fewer ranks", "start it again");
  }
  const auto it = std::find_if(view.members.begin(), view.members.end(), [&](const auto& m) { return m.rank == rank; });
  if (it != view.members.end() && IsCandidate(view, *it)) return {};
  return Err(ErrorCode::kConflict, NamesOf({rank}) + " of job '" + job.name + "' counts as lost and cannot go on with the others: " +
                                       job.reason + job.shrunk.given_up,
             "start the job again to have all ranks in it");
}

void GoOn(JobView& view, int rank) {
  if (MemberRecord* member = Find(view, rank)) member->goes_on = true;
}

void GiveUpMissing(JobView& view, uint64_t waited_ms) {
  for (MemberRecord& member : view.members) {
    if (!IsCandidate(view, member) || member.goes_on) continue;
    member.connected = false;
    view.job.shrunk.given_up += "; " + Who(member) + " did not ask to go on within " + std::to_string(waited_ms) + " ms";
  }
}

bool CanShrink(const JobView& view) {
  if (view.job.state != kFailed || view.job.deleted) return false;
  bool has_any = false;
  for (const MemberRecord& member : view.members) {
    if (!IsCandidate(view, member)) continue;
    if (!member.goes_on) return false;
    has_any = true;
  }
  return has_any;
}

void Shrink(JobView& view, uint64_t now_ms) {
  JobRecord next = NextLife(view.job, now_ms);
  next.shrunk.why = view.job.reason + view.job.shrunk.given_up;
  std::vector<MemberRecord> members;
  for (const MemberRecord& old : view.members) {  // by rank
    if (!IsCandidate(view, old)) {
      NameLost(next.shrunk, view.job, old);
      continue;
    }
    MemberRecord& member = members.emplace_back();
    member.incarnation = next.incarnation;
    member.rank = static_cast<int>(members.size()) - 1;
    member.host = old.host;
    member.pid = old.pid;
    member.connected = true;
    member.pings = old.pings;
    member.uid = old.uid;
    member.rings = old.rings;
    member.former_rank = old.rank;
  }
  auto& lost_hosts = next.shrunk.lost_hosts;
  for (const MemberRecord& old : view.members) {
    if (!IsIn(members, old.host) && std::find(lost_hosts.begin(), lost_hosts.end(), old.host) == lost_hosts.end()) lost_hosts.push_back(old.host);
  }
  next.world_size = static_cast<int>(members.size());
  view = JobView{std::move(next), std::move(members), {}};
}

const MemberRecord* Successor(const JobView& view, uint64_t incarnation, int rank) {
  if (view.job.shrunk.from != incarnation) return nullptr;
  const auto it = std::find_if(view.members.begin(), view.members.end(), [&](const auto& m) { return m.former_rank == rank; });
  return it == view.members.end() ? nullptr : &*it;
}

Error LeftBehind(const JobView& view, int rank) {
  return {ErrorCode::kConflict,
          NamesOf({rank}) + " is too late: job '" + view.job.name + "' has gone on with " + std::to_string(view.job.world_size) +
              " ranks, without it (" + view.job.shrunk.why + ")",
          "start the job again to have all ranks in it"};
}

std::vector<int> FormerRanks(const JobView& view) {
  std::vector<int> ranks;
  for (const MemberRecord& member : view.members) ranks.push_back(member.former_rank);
  return ranks;
}

std::optional<std::vector<int>> EarlierRanks(const JobView& view, const std::vector<int>& before) {
  std::vector<int> ranks = FormerRanks(view);
  for (int& rank : ranks) {
    if (rank < 0 || (!before.empty() && static_cast<size_t>(rank) >= before.size())) return {};
    if (!before.empty()) rank = before[static_cast<size_t>(rank)];
  }
  return ranks;
}

}  // namespace mlnet::control
