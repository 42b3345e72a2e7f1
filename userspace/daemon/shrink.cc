// SPDX-License-Identifier: Apache-2.0
// Ranks of a job that has failed and goes on with those who are left (control/shrink.h): they ask on the connection that they have,
// which follows the job into its new incarnation, and hear nothing before that is ready.
#include "control/shrink.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "control/job.h"
#include "daemon/daemon.h"

namespace mlnet::daemon {

using control::JobView;

namespace {

constexpr uint32_t kTimeoutMaxMs = 24 * 3600 * 1000;

}  // namespace

Result<void> Daemon::OnShrink(rpc::PeerId peer, const rpc::Request& request) {
  const auto wait_ms = rpc::Get<uint32_t>(request.params, "wait_ms");
  const auto timeout_ms = rpc::Get<uint32_t>(request.params, "timeout_ms");
  if (!wait_ms) return tl::make_unexpected(wait_ms.error());
  if (!timeout_ms) return tl::make_unexpected(timeout_ms.error());
  const auto it = sessions_.find(peer);
  if (it == sessions_.end()) return Err(ErrorCode::kInvalidArgument, "'shrink' before join");
  RankSession& session = it->second;
  if (session.request_id != 0) return Err(ErrorCode::kConflict, "this rank waits for an answer already");
  session.request_id = request.id;
  session.joined_ms = NowMs();
  session.deadline_ms = session.joined_ms + std::min(*timeout_ms, kTimeoutMaxMs);
  if (!session.shrinking) session.shrinking.emplace();
  session.shrinking->wait_ms = *wait_ms;
  session.shrinking->asked_ms = 0;
  return {};
}

void Daemon::RefuseShrink(rpc::PeerId peer, RankSession& session, const Error& why) {
  spdlog::info("job {}: rank {} cannot go on: {}", session.job, session.rank, why.ToString());
  server_->ReplyError(peer, session.request_id, why);
  session.request_id = 0;
  session.was_told = true;
}

// Each incarnation is followed: it does not end before all its candidates have asked again, or are given up.
bool Daemon::Follow(RankSession& session, const JobView& view) const {
  const control::MemberRecord* member = Successor(view, session.incarnation, session.rank);
  if (member == nullptr || member->host != config_.host) return false;
  RankSession::Shrinking& shrinking = *session.shrinking;
  auto former_ranks = EarlierRanks(view, shrinking.former_ranks);
  if (!former_ranks) return false;
  shrinking.former_ranks = std::move(*former_ranks);
  shrinking.why += (shrinking.why.empty() ? "" : "; ") + view.job.shrunk.why;
  shrinking.asked_ms = 0;
  spdlog::info("job {}: rank {} goes on as rank {} of {}", session.job, session.rank, member->rank, view.job.world_size);
  session.incarnation = view.job.incarnation;
  session.rank = member->rank;
  session.was_told = session.was_asked = session.was_ring_opened = session.was_ring_joined = session.has_news = false;
  session.report = nullptr;
  session.done_bytes = session.moved_ms = 0;
  session.grant = {};
  return true;
}

void Daemon::ServeShrinking(rpc::PeerId peer, RankSession& session, const JobView* view) {
  if (session.request_id == 0) return ServeSession(peer, session, view);  // it was refused
  const bool is_late = NowMs() >= session.deadline_ms;
  if (!store_->Outage().empty()) {
    if (is_late) RefuseShrink(peer, session, StoreTimeout(session.job, session.rank, session.joined_ms));
    return;
  }
  if (view == nullptr) return RefuseShrink(peer, session, {ErrorCode::kCancelled, "job '" + session.job + "' was deleted", ""});
  if (view->job.incarnation != session.incarnation && !Follow(session, *view)) {
    return RefuseShrink(peer, session, LeftBehind(*view, session.rank));
  }
  if (view->job.state == control::kFailed) return ServeFailed(peer, session, *view);
  if (session.shrinking->former_ranks.empty()) {  // of the job that it knows
    const bool is_ending = view->job.mismatch_ms != 0 || !news_.empty();
    if (is_ending && !is_late) return;
    return RefuseShrink(peer, session, {ErrorCode::kInvalidArgument, "job '" + session.job + "' has not failed: it has all its ranks", ""});
  }
  if (view->job.state == control::kReady && jobs_.Find(session.job) != nullptr) return AnswerJoin(peer, session, *view);
  if (!is_late) return;
  const uint64_t waited_ms = NowMs() - session.joined_ms;
  Change(session.job, session.incarnation, [&](JobView& v) { JoinTimedOut(v, session.rank, waited_ms, NowMs()); });
}

// It asks, and waits for the others; again where one more was lost before the new incarnation was ready.
void Daemon::ServeFailed(rpc::PeerId peer, RankSession& session, const JobView& view) {
  const bool is_first = session.shrinking->former_ranks.empty();
  const Error why = FailureOf(view.job);
  if (!is_first && why.code != ErrorCode::kRankLost && !session.was_told) return RefuseShrink(peer, session, why);
  if (auto ok = CheckGoesOn(view, session.rank); !ok) return RefuseShrink(peer, session, ok.error());
  const uint64_t now_ms = NowMs();
  if (now_ms >= session.deadline_ms) {
    return RefuseShrink(peer, session, {ErrorCode::kTimeout, "job '" + session.job + "' did not go on within " +
                                                                 std::to_string(now_ms - session.joined_ms) + " ms after it failed: " + why.message,
                                        "wait longer, or start it again"});
  }
  if (session.shrinking->asked_ms == 0) {
    const auto go_on = [rank = session.rank](JobView& v) {
      if (v.job.state == control::kFailed && CheckGoesOn(v, rank)) GoOn(v, rank);
    };
    if (Change(session.job, session.incarnation, go_on)) session.shrinking->asked_ms = now_ms;
    return;
  }
  const uint64_t waited_ms = now_ms - session.shrinking->asked_ms;
  if (waited_ms < session.shrinking->wait_ms || CanShrink(view)) return;
  Change(session.job, session.incarnation, [&](JobView& v) {
    if (v.job.state == control::kFailed) GiveUpMissing(v, waited_ms);
  });
}

}  // namespace mlnet::daemon
