// SPDX-License-Identifier: Apache-2.0
// Jobs that meet on links: every daemon works out the same shares from the same records and tells its own ranks; the
// daemon of a job's rank 0 notes how far the job is. The marks of a job's packets follow from the same shares, also where
// its sums are made.
#include "control/order.h"

#include "daemon/daemon.h"

namespace mlnet::daemon {

using control::Json;
using control::JobView;

void Daemon::OrderJobs() {
  if (sessions_.empty() && jobs_.empty()) return;
  const auto shares = control::SharesOf(snapshot_.jobs, config_.ageing, NowMs());
  MarkJobs(shares);
  TellGrants(shares);
  if (store_->Outage().empty()) NoteOwnJobs(shares);
}

control::Marks Daemon::MarksOf(const JobView& view, const std::map<std::string, plan::LinkShare>& shares) const {
  const auto share = shares.find(view.job.name);
  const control::Grant grant = share == shares.end() ? control::Grant{} : control::GrantOf(share->second);
  return control::MarksOf(config_.priority.dscp, view.job.spec.ceiling, grant);
}

void Daemon::MarkJobs(const std::map<std::string, plan::LinkShare>& shares) {
  for (const JobView& view : snapshot_.jobs) jobs_.Mark(view.job.name, MarksOf(view, shares));
}

// Whose processes send for the job from this host. Root's may send for any: mlnetd itself does.
uint32_t Daemon::UidOf(const std::string& job) const {
  std::optional<uint32_t> uid;
  for (const auto& [peer, session] : sessions_) {
    if (session.job != job || session.uid == 0) continue;
    if (uid && *uid != session.uid) return MLNET_UID_ANY;
    uid = session.uid;
  }
  return uid.value_or(0);
}

void Daemon::TellGrants(const std::map<std::string, plan::LinkShare>& shares) {
  for (auto& [peer, session] : sessions_) {
    if (session.request_id != 0 || session.absent_until_ms != 0) continue;
    const auto share = shares.find(session.job);
    const control::Grant grant = share == shares.end() ? control::Grant{} : control::GrantOf(share->second);
    if (grant == session.grant) continue;
    session.grant = grant;
    server_->Push(peer, {{"event", "grant"}, {"window", grant.window}, {"gap_us", grant.gap_us}, {"waits", grant.waits},
                         {"dscp", grant.dscp}});
  }
}

void Daemon::NoteOwnJobs(const std::map<std::string, plan::LinkShare>& shares) {
  const uint64_t now_ms = NowMs();
  for (const auto& [peer, session] : sessions_) {
    const JobView* view = FindJob(session.job);
    if (session.rank != 0 || session.request_id != 0 || view == nullptr || view->job.incarnation != session.incarnation) continue;
    const auto share = shares.find(session.job);
    const control::Sight sight{session.work_bytes, session.done_bytes,
                               session.moved_ms != 0 && now_ms < session.moved_ms + control::kMovingMs};
    const auto note = [&](JobView& v) {
      return NoteProgress(v.job, sight, share == shares.end() ? nullptr : &share->second, config_.ageing, now_ms);
    };
    JobView noted = *view;
    if (note(noted)) Change(session.job, session.incarnation, note);
  }
}

}  // namespace mlnet::daemon
