// SPDX-License-Identifier: Apache-2.0
// What the daemon does while the store does not answer, and makes good when it does again. Jobs that run need no store:
// their maps, inboxes and connections stay as they are. What ranks do meanwhile is kept and told afterwards.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "control/job.h"
#include "daemon/daemon.h"
#include "daemon/store_health.h"

namespace mlnet::daemon {

using control::Json;
using control::JobView;

namespace {

constexpr uint64_t kWarnEveryMs = 10'000;

// Where a rank asks for what the job has not, others could add to its sums although it thinks that they cannot.
tl::unexpected<Error> NoTagsError(const std::string& job) {
  return Err(ErrorCode::kConflict, "packets of job '" + job + "' carry no tags, and this rank asks for them (mac)",
             "mlnetctl job set " + job + " mac=true while it does not run, or ask for them on all ranks");
}

}  // namespace

void Daemon::WarnOfStore(const std::string& what, const Error& error) {
  if (IsNoAnswer(error)) return;  // Refresh says so, once
  const uint64_t now_ms = NowMs();
  const std::string text = what + error.ToString();
  if (text == store_warning_ && now_ms < next_store_warning_ms_) return;
  store_warning_ = text;
  next_store_warning_ms_ = now_ms + kWarnEveryMs;
  spdlog::warn("{}", text);
}

void Daemon::Tell(const std::string& job, uint64_t incarnation, std::function<void(JobView&)> change) {
  news_.push_back({job, incarnation, std::move(change)});
  TellNews();
}

// In their order: a rank that gave a reason and then left must not be known for having left.
void Daemon::TellNews() {
  while (!news_.empty() && store_->Outage().empty()) {
    const News& news = news_.front();
    auto done = store_->UpdateJob(news.job, [&](std::optional<JobView>& view) -> Result<void> {
      if (view && view->job.incarnation == news.incarnation) news.change(*view);
      return {};
    });
    if (!done && IsNoAnswer(done.error())) return;
    if (!done) spdlog::error("job {}: {}", news.job, done.error().ToString());
    news_.pop_front();
  }
}

// True: joined. False: the store gave no answer, and may or may not have the rank now.
Result<bool> Daemon::TryJoin(rpc::PeerId peer, const WaitingJoin& join) {
  RankSession session;
  JobView after;
  auto joined = store_->UpdateJob(join.job, [&](std::optional<JobView>& view) -> Result<void> {
    if (!view) {
      view.emplace();
      view->job.name = join.job;
      view->job.incarnation = join.began_ms;  // never that of an earlier job of this name
      view->job.spec = config_.job;
      if (join.classes != 0) view->job.spec.classes = join.classes;
      if (join.mac) view->job.spec.mac = true;
    }
    if (join.mac && !view->job.spec.mac) return NoTagsError(join.job);
    // An attempt whose answer was lost was carried out after all.
    const bool is_in = join.num_tries > 0 && !HasEnded(view->job) && IsMember(*view, join.request) &&
                       FindSession(join.job, view->job.incarnation, join.request.rank) == nullptr;
    auto ok = is_in ? Result<void>{} : Join(*view, join.request, NowMs());
    session.incarnation = view->job.incarnation;
    after = *view;
    // A first rank that was refused leaves no job behind.
    if (!ok && view->job.state == control::kJoining && view->members.empty() && !view->job.declared) view.reset();
    return ok;
  });
  if (!joined && IsNoAnswer(joined.error())) return false;
  if (!joined) return tl::make_unexpected(joined.error());
  session.job = join.job;
  session.rank = join.request.rank;
  session.uid = join.request.uid;
  session.pid = join.request.pid;
  session.work_bytes = join.work_bytes;
  session.request_id = join.request_id;
  session.joined_ms = join.began_ms;
  session.deadline_ms = join.deadline_ms;
  session.process = WatchProcess(join.request.pid);
  sessions_[peer] = std::move(session);
  // The loop must know what its rank has joined, even if the store gives no answer from here on: a job that it does not
  // know would be one that was deleted.
  std::erase_if(snapshot_.jobs, [&](const JobView& v) { return v.job.name == join.job; });
  snapshot_.jobs.push_back(std::move(after));
  spdlog::info("job {}: rank {} of {} joined, pid {}", join.job, join.request.rank, join.request.world_size, join.request.pid);
  return true;
}

// An outage that was over before this daemon started has left old heartbeats all the same.
bool Daemon::CanJudgeHosts() {
  if (can_judge_hosts_) return true;
  const auto hosts = store_->LoadHosts();
  if (!hosts) return false;
  const control::HostRecord* silent = NotHeardYet(*hosts, config_.host, started_ms_, NowMs());
  can_judge_hosts_ = silent == nullptr;
  if (silent != nullptr && !was_silence_logged_) {
    spdlog::info("mlnetd on host {} was last heard of {} s ago, perhaps for an outage of the store: it gets {} s to show up",
                 silent->host, (NowMs() - silent->heartbeat_ms) / 1000, control::kHeartbeatStaleMs / 1000);
    was_silence_logged_ = true;
  }
  return can_judge_hosts_;
}

Error Daemon::StoreTimeout(const std::string& job, int rank, uint64_t began_ms) const {
  const std::string outage = store_->Outage();
  return Error{ErrorCode::kTimeout,
               "waiting for the store at " + (outage.empty() ? config_.store : outage) + "; " + control::NamesOf({rank}) + " of job '" +
                   job + "' gave up after " + std::to_string(NowMs() - began_ms) + " ms",
               "see etcd there; jobs that run go on"};
}

void Daemon::ServeWaitingJoins() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    auto& [peer, join] = *it;
    const bool is_late = NowMs() >= join.deadline_ms;
    Result<bool> joined = false;
    if (is_late) {
      joined = tl::make_unexpected(StoreTimeout(join.job, join.request.rank, join.began_ms));
    } else if (store_->Outage().empty()) {
      joined = TryJoin(peer, join);
      ++join.num_tries;
    }
    if (joined && !*joined) {
      ++it;
      continue;
    }
    if (!joined) {
      spdlog::info("join by pid {} refused: {}", join.request.pid, joined.error().ToString());
      server_->ReplyError(peer, join.request_id, joined.error());
    }
    it = waiting_.erase(it);
  }
}

const RankSession* Daemon::FindSession(const std::string& job, uint64_t incarnation, int rank) const {
  const auto it = std::find_if(sessions_.begin(), sessions_.end(), [&](const auto& s) {
    return s.second.job == job && s.second.incarnation == incarnation && s.second.rank == rank;
  });
  return it == sessions_.end() ? nullptr : &it->second;
}

bool Daemon::IsMember(const JobView& view, const control::JoinRequest& request) {
  return std::any_of(view.members.begin(), view.members.end(), [&](const control::MemberRecord& m) {
    return m.rank == request.rank && m.host == request.host && m.pid == request.pid && m.connected;
  });
}

// Only this daemon makes members of its host, so one without a connection is what is left of a join whose answer was
// lost, and that nobody waits for any more.
void Daemon::DropGhosts() {
  if (!news_.empty() || !waiting_.empty() || !store_->Outage().empty()) return;
  for (const JobView& view : snapshot_.jobs) {
    if (HasEnded(view.job)) continue;
    for (const control::MemberRecord& m : view.members) {
      if (m.host != config_.host || !m.connected || FindSession(view.job.name, view.job.incarnation, m.rank) != nullptr) continue;
      spdlog::warn("job {}: rank {}, pid {}, has no connection any more", view.job.name, m.rank, m.pid);
      Tell(view.job.name, view.job.incarnation, [rank = m.rank, pid = m.pid](JobView& v) {
        const bool is_it = std::any_of(v.members.begin(), v.members.end(), [&](const auto& n) { return n.rank == rank && n.pid == pid; });
        if (is_it) MemberGone(v, rank, /*orderly=*/false, NowMs());
      });
    }
  }
}

}  // namespace mlnet::daemon
