// SPDX-License-Identifier: Apache-2.0
// Jobs that meet on links: every daemon works out the same shares from the same records and tells its own ranks; the
// daemon of a job's rank 0 notes how far the job is.
#include "control/order.h"

#include "daemon/daemon.h"

namespace mlnet::daemon {

using control::Json;
using control::JobView;

void Daemon::OrderJobs() {
  if (sessions_.empty()) return;
  const auto shares = control::SharesOf(snapshot_.jobs, config_.ageing, NowMs());
  TellGrants(shares);
  if (store_->Outage().empty()) NoteOwnJobs(shares);
}

void Daemon::TellGrants(const std::map<std::string, plan::LinkShare>& shares) {
  for (auto& [peer, session] : sessions_) {
    if (session.request_id != 0) continue;
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
