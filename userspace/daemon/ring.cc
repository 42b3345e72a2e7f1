// SPDX-License-Identifier: Apache-2.0
// Jobs that have lost a host which only sums (control/ring.h): this host's kernel is barred by removing the job from it, and
// its ranks are told, first to open a port, then who their neighbours are.
#include "control/ring.h"

#include <spdlog/spdlog.h>
#include <sys/random.h>

#include <array>

#include "control/job.h"
#include "control/plan.h"
#include "control/tree.h"
#include "daemon/daemon.h"

namespace mlnet::daemon {

using control::JobView;

std::string NewRingToken() {
  std::array<unsigned char, 16> random;
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) return "";
  std::string token;
  for (const unsigned char byte : random) {
    token += "0123456789abcdef"[byte >> 4];
    token += "0123456789abcdef"[byte & 15];
  }
  return token;
}

bool Daemon::LoseHost(const JobView& view, const std::string& host, const Error& error) {
  const std::string token = NewRingToken();
  const bool is_beginning = view.job.state == control::kPreparing && !IsInRing(view.job) && MayStartInRing(view);
  if (is_beginning && LocalRanks(view.job.plan, host).empty()) return PlanRing(view, error.message);
  if (!CanLose(view, host) || token.empty()) return FailJob(view, error, {});
  spdlog::warn("job {}: {}; its ranks go on in user space", view.job.name, error.ToString());
  return Change(view.job.name, view.job.incarnation, [&](JobView& v) { control::LoseHost(v, host, error, token, NowMs()); });
}

void Daemon::TellSilentRoot(const JobView& view, const std::string& root, const Error& error) {
  spdlog::warn("job {}: {}", view.job.name, root.empty() ? "its root answers again" : error.ToString());
  Tell(view.job.name, view.job.incarnation, [host = config_.host, root, error, token = NewRingToken()](JobView& v) {
    control::NoteSilentRoot(v, host, root, error, token, NowMs());
  });
}

// A join that is not answered yet needs the job's maps for its answer.
bool Daemon::IsBarred(const JobView& view) const {
  if (!IsInRing(view.job) || view.job.state != control::kReady) return false;
  return std::none_of(sessions_.begin(), sessions_.end(), [&](const auto& s) {
    return s.second.job == view.job.name && s.second.incarnation == view.job.incarnation && s.second.request_id != 0;
  });
}

void Daemon::ServeRings() {
  for (const JobView& view : snapshot_.jobs) {
    if (!IsInRing(view.job) || view.job.state != control::kReady) continue;
    if (const auto failure = RingFailure(view, NowMs()); failure && store_->Outage().empty()) {
      FailJob(view, *failure, {});
      continue;
    }
    if (jobs_.Find(view.job.name) != nullptr) continue;  // not barred yet: what ranks hold may change
    for (auto& [peer, session] : sessions_) {
      const bool is_here = session.absent_until_ms == 0 && !session.was_told;
      if (session.job == view.job.name && session.incarnation == view.job.incarnation && is_here) ServeRing(peer, session, view);
    }
  }
}

void Daemon::ServeRing(rpc::PeerId peer, RankSession& session, const JobView& view) {
  if (!session.was_ring_opened) {
    session.was_ring_opened = true;
    server_->Push(peer, {{"event", "ring_open"}, {"job", view.job.name}, {"why", view.job.ring.why}, {"token", view.job.ring.token},
                         {"address", control::RingAddress(view.job.plan, session.rank)}});
  }
  if (!session.was_ring_joined && IsRingOpen(view)) {
    session.was_ring_joined = true;
    control::Json push = control::RingPeersFor(view, session.rank);
    push["event"] = "ring_join";
    server_->Push(peer, push);
  }
}

void Daemon::OnRingPort(const RankSession& session, const rpc::Request& request) {
  const auto port = rpc::GetOr<uint16_t>(request.params, "port", 0).value_or(0);
  Tell(session.job, session.incarnation, [rank = session.rank, port](JobView& view) {
    for (control::MemberRecord& member : view.members) {
      if (member.rank == rank) member.ring_port = port;
    }
  });
}

}  // namespace mlnet::daemon
