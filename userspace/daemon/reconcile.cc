// SPDX-License-Identifier: Apache-2.0
// One pass of the loop: what the store wants of this host is made so; what is ripe is decided.
// Every decision is checked again inside its write transaction: whoever comes first makes it.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "control/job.h"
#include "control/plan.h"
#include "control/ring.h"
#include "control/tree.h"
#include "daemon/daemon.h"
#include "daemon/job_key.h"

namespace mlnet::daemon {

using control::Json;
using control::JobView;

namespace {

constexpr uint64_t kBeatEveryMs = 1000;
constexpr uint64_t kFlushEveryMs = 1000;
constexpr uint64_t kReconcileEveryMs = 2000;
constexpr int kRoundsMax = 8;  // a step may make the next one possible

bool SameHost(const control::HostRecord& a, const control::HostRecord& b) { return Json(a) == Json(b); }

control::JobHostRecord& HostIn(JobView& view, const std::string& host) {
  for (control::JobHostRecord& h : view.hosts) {
    if (h.host == host) return h;
  }
  return view.hosts.emplace_back(control::JobHostRecord{view.job.incarnation, host, false, 0, false});
}

// Why a job that runs on `host` cannot go on; empty: it can.
std::string WhyHostIsGone(const Snapshot& snapshot, const std::string& host, uint64_t now_ms) {
  const auto it = std::find_if(snapshot.hosts.begin(), snapshot.hosts.end(), [&](const auto& h) { return h.host == host; });
  if (it == snapshot.hosts.end() || !it->running) return "mlnetd on host " + host + " has stopped";
  if (now_ms > it->heartbeat_ms + control::kHeartbeatStaleMs) return "mlnetd on host " + host + " does not answer any more";
  return "";
}

}  // namespace

const JobView* Daemon::FindJob(const std::string& name) const {
  const auto it = std::find_if(snapshot_.jobs.begin(), snapshot_.jobs.end(), [&](const auto& v) { return v.job.name == name; });
  return it == snapshot_.jobs.end() ? nullptr : &*it;
}

bool Daemon::Change(const std::string& name, uint64_t incarnation, const std::function<void(JobView&)>& change) {
  auto done = store_->UpdateJob(name, [&](std::optional<JobView>& view) -> Result<void> {
    if (view && view->job.incarnation == incarnation) change(*view);
    return {};
  });
  if (!done) WarnOfStore("job " + name + ": ", done.error());
  return done.has_value();
}

bool Daemon::FailJob(const JobView& view, const Error& error, std::vector<int> ranks) {
  spdlog::warn("job {} failed: {}", view.job.name, error.ToString());
  return Change(view.job.name, view.job.incarnation, [&](JobView& v) { Fail(v, error, ranks, NowMs()); });
}

void Daemon::PublishHost() {
  control::HostRecord record{config_.host,       config_.instance,   static_cast<int>(::getpid()), config_.port,
                             jobs_.SlotsFree(), ifaces_.local_address(), ifaces_.Records(), config_.rack,
                             config_.oversubscription, true, NowMs(), ifaces_.local_address6()};
  if (is_published_ && SameHost(record, published_)) return;
  if (auto ok = store_->SaveHost(record); !ok) {
    WarnOfStore("", ok.error());
    return;
  }
  published_ = record;
  is_published_ = true;
}

void Daemon::Pass() {
  const uint64_t now_ms = NowMs();
  if (now_ms >= next_reconcile_ms_) {
    next_reconcile_ms_ = now_ms + kReconcileEveryMs;
    ifaces_.Reconcile();
    jobs_.RefreshHops();
    PublishHost();
  }
  ServeWaitingJoins();
  for (int round = 0; round < kRoundsMax; ++round) {
    BeatIfDue();
    TellNews();
    Refresh();
    // What is to go goes before anything new comes: ids may be the same.
    RemoveGone();
    if (!store_->Outage().empty()) break;  // nothing can be decided
    bool did_something = false;
    for (const JobView& view : snapshot_.jobs) {
      BeatIfDue();
      did_something |= Step(view);
    }
    if (!did_something) break;
  }
  EndAbsent();
  FindSilence();
  ServeSessions();
  ServeRings();
  EndTraces();
  OrderJobs();
  if (now_ms >= next_flush_ms_) {
    next_flush_ms_ = now_ms + kFlushEveryMs;
    Flush();
    DropGhosts();
  }
}

// What cannot be read stays as it was, and is tried again in every pass: it counts as seen only once it is here.
void Daemon::Refresh() {
  std::string problem;
  auto changed = store_->Changed(snapshot_);
  if (!changed) problem = changed.error().ToString();
  if (changed && *changed) {
    std::set<std::string> joined;  // their ranks are told how it ended
    for (const auto& [peer, session] : sessions_) joined.insert(session.job);
    auto fresh = store_->LoadOpen(joined);
    if (fresh) snapshot_ = std::move(*fresh);
    else problem = fresh.error().ToString();
  }
  if (!problem.empty() && problem != store_problem_) spdlog::error("{}", problem);
  if (problem.empty() && !store_problem_.empty()) spdlog::info("the store answers again");
  store_problem_ = problem;
}

void Daemon::RemoveGone() {
  std::vector<std::string> gone;
  for (const auto& [name, local] : jobs_.all()) {
    const JobView* view = FindJob(name);
    if (view == nullptr || view->job.incarnation != local.incarnation || view->job.plan.epoch != local.plan.epoch || !IsActive(view->job) || IsBarred(*view)) gone.push_back(name);
  }
  for (const std::string& name : gone) Uninstall(name);
  std::erase_if(hop_probes_, [&](const auto& probe) {
    const JobView* view = FindJob(probe.first);
    return view == nullptr || !IsActive(view->job);
  });
  if (!gone.empty()) PublishHost();
}

void Daemon::Uninstall(const std::string& name) {
  LocalJob* local = jobs_.Find(name);
  if (local == nullptr) return;
  const Store::Counters last{"host " + config_.host, jobs_.Counters(*local)};
  if (auto ok = store_->SaveCounters(name, local->incarnation, {last}); !ok) WarnOfStore("", ok.error());
  probes_.erase(name);
  policies_.erase(name);
  suspicions_.erase(name);
  jobs_.Uninstall(name);
}

bool Daemon::Step(const JobView& view) {
  if (IsForgotten(view)) {
    auto done = store_->UpdateJob(view.job.name, [](std::optional<JobView>& v) -> Result<void> {
      if (v && IsForgotten(*v)) v.reset();
      return {};
    });
    return done.has_value();
  }
  if (EndIfBroken(view) || PlanIfFull(view)) return true;
  if (const std::string why = WhyStartInRing(view, NowMs()); !why.empty()) return PlanRing(view, why);
  if (!IsActive(view.job) || !Involves(view.job.plan, config_.host)) return false;
  if (IsInRing(view.job) && view.job.state == control::kReady) return false;
  return InstallIfNeeded(view) || FinishPreparing(view);
}

bool Daemon::EndIfBroken(const JobView& view) {
  const uint64_t now_ms = NowMs();
  if (MismatchIsRipe(view, now_ms)) return FailJob(view, MismatchError(view), {});
  if (!IsActive(view.job)) return false;
  for (const std::string& host : HostsNeeded(view.job)) {
    if (host == config_.host) continue;
    std::string why = WhyHostIsGone(snapshot_, host, now_ms);
    if (why.empty()) continue;
    if (!CanJudgeHosts()) return false;
    // Heartbeats are no changes: look at the newest before a job ends because of one.
    auto fresh = store_->LoadHosts();
    if (!fresh) return false;
    snapshot_.hosts = std::move(*fresh);
    why = WhyHostIsGone(snapshot_, host, now_ms);
    if (!why.empty()) return LoseHost(view, host, Error{ErrorCode::kUnavailable, why, "start it again, then the job"});
  }
  return false;
}

// A packet to each makes the kernel find out; the next pass looks again.
void Daemon::AskForHops(const JobView& view, const std::vector<std::string>& addresses) {
  const control::Plan& plan = view.job.plan;
  const auto own = std::find_if(plan.ports.begin(), plan.ports.end(), [&](const auto& p) { return p.host == config_.host; });
  FanProbe& probe = hop_probes_.try_emplace(view.job.name, NowMs()).first->second;
  if (own == plan.ports.end() || !probe.IsPingDue(NowMs())) return;
  for (const std::string& address : addresses) {
    auto sent = SendPing({address, own->address, ifaces_.Ifindex(own->iface), plan.port, plan.job_id, plan.epoch, 0, probe.num_pings(), KeyOf(view)});
    if (!sent && probe.num_pings() == 1) spdlog::warn("job {}: {}", view.job.name, sent.error().ToString());
  }
}

bool Daemon::InstallIfNeeded(const JobView& view) {
  const auto prepared = [&](JobView& v) {
    if (v.job.plan.epoch == view.job.plan.epoch) HostIn(v, config_.host).prepared = true;
  };
  if (jobs_.Find(view.job.name) != nullptr) {
    // The store may have given no answer when it was told.
    const bool is_known = std::any_of(view.hosts.begin(), view.hosts.end(), [&](const auto& h) { return h.host == config_.host && h.prepared; });
    return !is_known && Change(view.job.name, view.job.incarnation, prepared);
  }
  const auto unknown = jobs_.UnknownHops(view.job.plan);
  if (!unknown.empty()) {
    AskForHops(view, unknown);
    return false;
  }
  hop_probes_.erase(view.job.name);
  auto ok = CheckSlots(view);
  const auto shares = control::SharesOf(snapshot_.jobs, config_.ageing, NowMs());
  if (ok) ok = jobs_.Install(view, MarksOf(view, shares), UidOf(view.job.name));
  if (!ok) {
    Error error = ok.error();
    error.message = "host " + config_.host + ": " + error.message;
    return FailJob(view, error, {});
  }
  PublishHost();
  return Change(view.job.name, view.job.incarnation, prepared);
}

// Roots send probes until the first tree's host has decided how results travel; then each makes it so.
bool Daemon::FinishPreparing(const JobView& view) {
  if (view.job.state != control::kPreparing || !AllHostsPrepared(view)) return false;
  if (IsInRing(view.job)) return Change(view.job.name, view.job.incarnation, [](JobView& v) { OpenRing(v, NowMs()); });
  if (!IsRootOfAny(view.job.plan, config_.host)) return false;
  if (!view.job.fan.empty()) return Serve(view);
  const uint64_t now_ms = NowMs();
  FanProbe& probe = probes_.try_emplace(view.job.name, now_ms).first->second;
  const auto decision = probe.Decide(view, now_ms);
  if (!decision) {
    if (probe.IsPingDue(now_ms)) ProbeGroup(view, probe.num_pings());
    return false;
  }
  if (!IsRoot(view.job.plan, 0, config_.host)) return false;
  if (decision->fan.empty()) {
    return FailJob(view, Error{ErrorCode::kUnsupported, "multicast = \"on\", but " + decision->why,
                               "check IGMP snooping in the switches, or use multicast = \"auto\""}, {});
  }
  return Change(view.job.name, view.job.incarnation, [&](JobView& v) {
    if (v.job.state != control::kPreparing || v.job.plan.epoch != view.job.plan.epoch) return;
    v.job.fan = decision->fan;
    v.job.fan_why = decision->why;
  });
}

void Daemon::ProbeGroup(const JobView& view, uint64_t nonce) {
  const control::Plan& plan = view.job.plan;
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    if (!IsRoot(plan, t, config_.host)) continue;
    const control::PlanPort& root = RootOf(plan, t);
    auto sent = SendPing({plan.group, root.address, ifaces_.Ifindex(root.iface), plan.port, plan.job_id, plan.epoch, static_cast<uint8_t>(t), nonce, KeyOf(view)});
    if (!sent && nonce == 1) spdlog::warn("job {}: {}", view.job.name, sent.error().ToString());
  }
}

bool Daemon::Serve(const JobView& view) {
  const auto own = std::find_if(view.hosts.begin(), view.hosts.end(), [&](const auto& h) { return h.host == config_.host; });
  if (own == view.hosts.end() || own->serving) return false;
  if (view.job.fan == "multicast") {
    if (auto ok = jobs_.UseMulticast(*jobs_.Find(view.job.name)); !ok) return FailJob(view, ok.error(), {});
  }
  spdlog::info("job {}: results by {}: {}", view.job.name, view.job.fan, view.job.fan_why);
  return Change(view.job.name, view.job.incarnation, [&](JobView& v) {
    if (v.job.plan.epoch != view.job.plan.epoch) return;
    HostIn(v, config_.host).serving = true;
    bool all_serve = true;
    for (size_t t = 0; t < v.job.plan.trees.size(); ++t) all_serve = all_serve && HostIn(v, RootOf(v.job.plan, t).host).serving;
    if (v.job.state == control::kPreparing && all_serve) v.job.state = control::kReady;
  });
}

// The store is told once, when the probes of all trees are in: one change a host, not one per host and tree.
void Daemon::OnProbe(const JobView& view, LocalJob& local, uint8_t tree) {
  const uint32_t wanted = ProbesFor(local.plan, config_.host);
  local.multicast_seen |= uint32_t{1} << (tree & (MLNET_TREES_MAX - 1));
  if ((local.multicast_seen & wanted) != wanted || NowMs() < local.told_ms + kPingForMs / 2) return;
  const auto known = std::find_if(view.hosts.begin(), view.hosts.end(), [&](const auto& h) { return h.host == config_.host; });
  if (known != view.hosts.end() && (known->multicast_seen & wanted) == wanted) return;
  local.told_ms = NowMs();
  Tell(view.job.name, local.incarnation, [host = config_.host, wanted](JobView& v) { HostIn(v, host).multicast_seen |= wanted; });
}

void Daemon::OnEvent(const mlnet_event& event) {
  for (auto& [name, local] : jobs_.all()) {
    if (local.plan.job_id != event.job || local.plan.epoch != event.epoch) continue;
    const JobView* view = FindJob(name);
    if (view == nullptr || HasEnded(view->job)) return;
    if (event.event == MLNET_EV_PING_SEEN) OnProbe(*view, local, event.tree);
    if (event.event == MLNET_EV_SUMMED) {
      if (const auto trace = traces_.find(name); trace != traces_.end()) trace->second.AddSum(event);
      return;
    }
    if (event.event == MLNET_EV_POOL_WANTED) jobs_.OpenPool(name, local, event.tree, event.class_stream);
    if (event.event == MLNET_EV_MISMATCH && view->job.mismatch_ms == 0) {
      spdlog::warn("job {}: child {} sent another collective (fingerprint {:08x}) than the slot holds ({:08x})", name, event.child,
                   event.b, event.a);
      Tell(name, local.incarnation, [](JobView& v) {
        if (v.job.mismatch_ms == 0) v.job.mismatch_ms = NowMs();
      });
    }
    return;
  }
}

void Daemon::ServeSessions() {
  std::vector<rpc::PeerId> peers;
  for (const auto& [peer, session] : sessions_) {
    if (session.absent_until_ms == 0) peers.push_back(peer);
  }
  for (const rpc::PeerId peer : peers) {
    const auto it = sessions_.find(peer);
    if (it == sessions_.end()) continue;
    const JobView* view = FindJob(it->second.job);
    it->second.shrinking ? ServeShrinking(peer, it->second, view) : ServeSession(peer, it->second, view);
  }
}

void Daemon::ServeSession(rpc::PeerId peer, RankSession& session, const JobView* view) {
  const bool is_mine = view != nullptr && view->job.incarnation == session.incarnation;
  const Error gone{ErrorCode::kCancelled, "job '" + session.job + "' was deleted", ""};
  const bool has_failed = !is_mine || view->job.state == control::kFailed;
  if (has_failed && !session.was_told) {
    session.was_told = true;
    const Error why = is_mine ? FailureOf(view->job) : gone;
    if (session.request_id != 0) {
      server_->ReplyError(peer, session.request_id, why);
      EndSession(peer, /*orderly=*/true);  // it has nothing that it could leave
      return;
    }
    server_->Push(peer, {{"event", "job_failed"}, {"code", ErrorCodeName(why.code)}, {"message", why.message}, {"hint", why.hint},
                        {"ranks", is_mine ? view->job.ranks : std::vector<int>{}}});
  }
  if (has_failed) return;
  if (session.request_id != 0 && view->job.state == control::kReady && jobs_.Find(session.job) != nullptr) {
    AnswerJoin(peer, session, *view);
  } else if (session.request_id != 0 && NowMs() >= session.deadline_ms) {
    const uint64_t waited_ms = NowMs() - session.joined_ms;
    if (!store_->Outage().empty()) {
      server_->ReplyError(peer, session.request_id, StoreTimeout(session.job, session.rank, session.joined_ms));
      EndSession(peer, /*orderly=*/true);
      return;
    }
    Change(session.job, session.incarnation, [&](JobView& v) { JoinTimedOut(v, session.rank, waited_ms, NowMs()); });
  }
  if (session.request_id == 0 && view->job.mismatch_ms != 0 && !session.was_asked) {
    session.was_asked = true;
    server_->Push(peer, {{"event", "describe"}});
  }
  const control::JobSpec& spec = view->job.spec;
  const auto [told, is_new] = policies_.try_emplace(session.job, spec);
  if (is_new || (told->second.rto_min_us == spec.rto_min_us && told->second.rto_max_us == spec.rto_max_us)) return;
  told->second = spec;
  for (const auto& [other, s] : sessions_) {
    if (s.job != session.job || s.request_id != 0) continue;
    server_->Push(other, {{"event", "policy"}, {"rto_min_us", spec.rto_min_us}, {"rto_max_us", spec.rto_max_us}});
  }
}

void Daemon::Beat() {
  next_beat_ms_ = NowMs() + kBeatEveryMs;
  if (auto ok = store_->Beat(config_.host, NowMs()); !ok) WarnOfStore("", ok.error());
}

// Also between two decisions: where the store is slow, a pass may take longer than others wait for a sign of life.
void Daemon::BeatIfDue() {
  if (NowMs() >= next_beat_ms_) Beat();
}

void Daemon::Flush() {
  // A job's in one call: a store that is elsewhere takes milliseconds for each.
  std::map<std::pair<std::string, uint64_t>, std::vector<Store::Counters>> news;
  for (auto& [peer, session] : sessions_) {
    if (!session.has_news) continue;
    session.has_news = false;
    news[{session.job, session.incarnation}].push_back({control::NamesOf({session.rank}), session.report});
  }
  for (auto& [name, local] : jobs_.all()) news[{name, local.incarnation}].push_back({"host " + config_.host, jobs_.Counters(local)});
  for (const auto& [job, counters] : news) {
    if (auto ok = store_->SaveCounters(job.first, job.second, counters); !ok) WarnOfStore("", ok.error());
  }
}

}  // namespace mlnet::daemon
