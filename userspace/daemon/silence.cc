// SPDX-License-Identifier: Apache-2.0
// Members of running jobs that have fallen silent (control/liveness.h): what the kernel knows of them, and what follows.
#include <spdlog/spdlog.h>

#include "base/clock.h"
#include "base/read_file.h"
#include "control/job.h"
#include "control/plan.h"
#include "control/ring.h"
#include "control/tree.h"
#include "daemon/daemon.h"

namespace mlnet::daemon {

using control::JobView;

namespace {

constexpr uint64_t kLookEveryNs = 40'000'000;

// By a signal or a debugger. proc(5): the state follows the command's name, which may hold anything.
bool IsStopped(pid_t pid) {
  const auto text = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  if (!text) return false;  // it has ended
  const size_t end = text->rfind(") ");
  return end != std::string::npos && end + 2 < text->size() && ((*text)[end + 2] == 'T' || (*text)[end + 2] == 't');
}

}  // namespace

std::set<int> Daemon::StoppedRanks(const std::string& job) const {
  std::set<int> stopped;
  for (const auto& [peer, session] : sessions_) {
    if (session.job == job && session.rank != control::kServerRank && IsStopped(session.pid)) stopped.insert(session.rank);
  }
  return stopped;
}

// Not in each pass: a busy daemon makes many, and each look reads the counters of all trees.
void Daemon::FindSilence() {
  const uint64_t now_ns = MonotonicClock().NowNs();
  if (now_ns < next_look_ns_) return;
  next_look_ns_ = now_ns + kLookEveryNs;
  std::erase_if(suspicions_, [this](const auto& entry) { return jobs_.Find(entry.first) == nullptr; });
  std::erase_if(liveness_, [this](const auto& entry) {
    const JobView* view = FindJob(entry.first);
    return view == nullptr || view->job.incarnation != entry.second.incarnation() || view->job.state != control::kReady;
  });
  for (auto& [name, local] : jobs_.all()) {
    const JobView* view = FindJob(name);
    if (view == nullptr || view->job.incarnation != local.incarnation || view->job.state != control::kReady) continue;
    control::Liveness& liveness = liveness_.try_emplace(name, local.incarnation, now_ns).first->second;
    const auto loss = liveness.Look(*view, config_.host, {jobs_.Signs(local, now_ns), StoppedRanks(name)}, now_ns);
    if (loss) {
      OnSilence(*view, *loss, now_ns);
    } else if (const auto it = suspicions_.find(name); it != suspicions_.end()) {
      if (!it->second.root.empty()) TellSilentRoot(*view, "", {});
      suspicions_.erase(it);
    }
  }
}

// Where the job could go on without a host that only sums, it must be known who it is that is cut off: a host that alone
// does not hear its root, or hears nobody, waits whether the others say something else.
void Daemon::OnSilence(const JobView& view, const control::Loss& loss, uint64_t now_ns) {
  const std::string& name = view.job.name;
  const std::string& host = loss.is_alone ? config_.host : loss.host;
  if (host.empty() || !CanLose(view, host)) return DeclareLost(view, loss);
  if (!loss.is_alone && !loss.is_root) {
    LoseHost(view, host, loss.error);
    return;
  }
  const std::string root = loss.is_alone ? "" : host;
  const auto [suspicion, is_new] = suspicions_.try_emplace(name, Suspicion{root, now_ns});
  if (is_new && loss.is_root) TellSilentRoot(view, root, loss.error);
  const uint64_t patience_ms = (loss.is_alone ? 2ULL : 1ULL) * view.job.spec.lost_ms;
  if (now_ns < suspicion->second.since_ns + patience_ms * 1'000'000) return;
  suspicions_.erase(suspicion);
  DeclareLost(view, loss);
}

// The ranks of this host hear of it at once: where the host is cut off, the store may be too.
void Daemon::DeclareLost(const JobView& view, const control::Loss& loss) {
  spdlog::warn("job {}: {}", view.job.name, loss.error.ToString());
  for (auto& [peer, session] : sessions_) {
    if (session.job != view.job.name || session.incarnation != view.job.incarnation || session.request_id != 0 || session.was_told || session.absent_until_ms != 0) continue;
    session.was_told = true;
    server_->Push(peer, {{"event", "job_failed"}, {"code", ErrorCodeName(loss.error.code)}, {"message", loss.error.message},
                         {"hint", loss.error.hint}, {"ranks", loss.ranks}});
  }
  liveness_.erase(view.job.name);
  Tell(view.job.name, view.job.incarnation, [loss](JobView& v) {
    // What was found before the ring took over says nothing about it.
    if (!IsInRing(v.job)) Fail(v, loss.error, loss.ranks, NowMs());
  });
}

}  // namespace mlnet::daemon
