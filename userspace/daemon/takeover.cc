// SPDX-License-Identifier: Apache-2.0
// A start under traffic: what runs in the kernel is taken over, what belongs to nothing that runs is removed, and the ranks
// of this host are waited for.
#include "daemon/takeover.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "control/job.h"
#include "control/plan.h"
#include "control/ring.h"
#include "control/tree.h"
#include "daemon/daemon.h"
#include "datapath/local_link.h"
#include "datapath/netdev.h"

namespace mlnet::daemon {

using control::Json;
using control::JobView;

namespace {

constexpr std::chrono::seconds kBeatEvery{1};
constexpr rpc::PeerId kFirstAbsent = rpc::PeerId{1} << 63;  // peers are counted from 1

bool RunsHere(const JobView& view, const std::string& host) {
  return view.job.state == control::kReady && NeedsHost(view.job, host);
}

/// Ends a job that stands on `host`, or lets its ranks go on without it, and ends the memberships of its ranks there.
Result<void> EndHere(Store& store, const JobView& old, const std::string& host, const Error& why) {
  return store.UpdateJob(old.job.name, [&](std::optional<JobView>& view) -> Result<void> {
    if (!view) return {};
    if (IsActive(view->job) && NeedsHost(view->job, host)) control::LoseHost(*view, host, why, NewRingToken(), NowMs());
    const auto members = view->members;
    for (const control::MemberRecord& m : members) {
      if (m.host == host) MemberGone(*view, m.rank, false, NowMs());
    }
    return {};
  });
}

/// `why`: what ran could not go on; empty: nothing was there any more.
Error RestartError(const std::string& host, const std::string& why) {
  const std::string text = "mlnetd on host " + host + " was restarted" + (why.empty() ? "" : ", and could not go on with the job: " + why);
  return Error{ErrorCode::kUnavailable, text, "start the job again"};
}

// Of another user: the number was given to another process since.
bool IsOfUser(const control::MemberRecord& member) {
  struct stat st;
  const std::string folder = "/proc/" + std::to_string(member.pid);
  return member.uid == control::kUidUnknown || (::stat(folder.c_str(), &st) == 0 && st.st_uid == member.uid);
}

// The verifier takes its time, and other hosts look at heartbeats.
Result<datapath::Program> LoadOver(const control::Config& config, Store& store, const std::string& dir) {
  auto loading = std::async(std::launch::async, [&] { return datapath::Program::LoadOver({config.port, config.slots}, dir); });
  do {
    if (auto ok = store.Beat(config.host, NowMs()); !ok) spdlog::warn("{}", ok.error().ToString());
  } while (loading.wait_for(kBeatEvery) != std::future_status::ready);
  return loading.get();
}

}  // namespace

Result<Loaded> LoadProgram(const control::Config& config, Store& store, datapath::PinFolder& pins) {
  const auto snapshot = store.Load();
  if (!snapshot) return tl::make_unexpected(snapshot.error());
  const bool has_jobs = std::any_of(snapshot->jobs.begin(), snapshot->jobs.end(), [&](const auto& v) { return RunsHere(v, config.host); });
  std::string why_anew;
  if (has_jobs && !pins.HasMaps()) {
    for (const std::string& layout : pins.OtherLayouts()) why_anew = "its maps had layout " + layout + ", this mlnetd's have v" + std::to_string(MLNET_ABI_VERSION);
  } else if (has_jobs) {
    auto over = LoadOver(config, store, pins.path());
    if (over) {
      pins.TakeOver();
      return Loaded{std::move(*over), true};
    }
    if (over.error().code != ErrorCode::kConflict) return tl::make_unexpected(over.error());
    why_anew = over.error().message;
  }
  // Before its maps go: ranks would hear of silence first.
  for (const JobView& old : snapshot->jobs) {
    if (auto ok = EndHere(store, old, config.host, RestartError(config.host, why_anew)); !ok) return tl::make_unexpected(ok.error());
  }
  if (auto ok = pins.Clear(); !ok) return tl::make_unexpected(ok.error());
  auto fresh = datapath::Program::Load({config.port, config.slots});
  if (!fresh) return tl::make_unexpected(fresh.error());
  return Loaded{std::move(*fresh), false};
}

Result<void> CleanUp(const control::Config& config) {
  auto pins = datapath::PinFolder::Take(config.pin_root, config.instance);
  if (!pins) return tl::make_unexpected(pins.error());
  NicState nic_state(config.state_dir, config.instance);
  Qos(nic_state).Undo();
  UndoTags(nic_state);
  nic_state.UndoAll(kDispatchedSection, {}, [](const std::string& iface, const Json& entry) {
    if (const auto dev = datapath::ReadNetdev(iface)) datapath::RemoveFromDispatcher(dev->ifindex, entry.value("prog_id", 0u));
  });
  if (auto ok = pins->Clear(); !ok) return ok;
  datapath::LocalLink::Remove(config.instance);
  pins->Remove(/*keep_links=*/false);
  auto store = OpenStore(config);
  if (!store) return tl::make_unexpected(store.error());
  auto snapshot = (*store)->Load();
  if (!snapshot) return tl::make_unexpected(snapshot.error());
  const Error stopped{ErrorCode::kUnavailable, "mlnetd on host " + config.host + " has stopped", "start it again, then the job"};
  for (const JobView& old : snapshot->jobs) {
    if (auto ok = EndHere(**store, old, config.host, stopped); !ok) return ok;
  }
  for (control::HostRecord& host : snapshot->hosts) {
    if (host.host != config.host) continue;
    host.running = false;
    for (control::IfaceRecord& iface : host.ifaces) iface.attached = false;
    return (*store)->SaveHost(host);
  }
  return {};
}

// Where nothing is taken over, all that stood here has ended before.
Result<void> Daemon::TakeOverJobs() {
  if (!takes_over_) return {};
  auto snapshot = store_->Load();
  if (!snapshot) return tl::make_unexpected(snapshot.error());
  for (const JobView& old : snapshot->jobs) {
    const bool runs_here = RunsHere(old, config_.host);
    const bool is_in_kernel = runs_here && !IsInRing(old.job);
    const auto taken = is_in_kernel ? jobs_.TakeOver(old) : Result<void>{};
    if (runs_here && taken) {
      AwaitRanks(old);
      continue;
    }
    const Error why = RestartError(config_.host, taken ? "" : taken.error().message);
    if (!taken) spdlog::error("job {}: {}", old.job.name, why.message);
    // Its members here have no connection any more.
    if (auto ok = EndHere(*store_, old, config_.host, why); !ok) return ok;
  }
  jobs_.RemoveLeftovers();
  ifaces_.DropOtherPrograms();
  return {};
}

void Daemon::AwaitRanks(const JobView& view) {
  for (const control::MemberRecord& member : view.members) {
    if (member.host != config_.host || !member.connected) continue;
    RankSession session;
    session.job = view.job.name;
    session.incarnation = view.job.incarnation;
    session.rank = member.rank;
    session.uid = member.uid == control::kUidUnknown ? view.job.uid : member.uid;
    session.pid = member.pid;
    session.joined_ms = view.job.opened_ms;
    session.done_bytes = view.job.progress.done_bytes;
    session.work_bytes = view.job.progress.work_bytes;
    session.moved_ms = NowMs();
    session.process = WatchProcess(member.pid);
    session.absent_until_ms = NowMs() + config_.reconnect_ms;
    const bool is_alive = session.process && IsOfUser(member);
    const rpc::PeerId peer = kFirstAbsent + sessions_.size();
    sessions_[peer] = std::move(session);
    if (!is_alive) EndSession(peer, /*orderly=*/false);
  }
}

void Daemon::EndAbsent() {
  std::vector<rpc::PeerId> lost;
  for (const auto& [peer, session] : sessions_) {
    if (session.absent_until_ms != 0 && NowMs() >= session.absent_until_ms && store_->Outage().empty()) lost.push_back(peer);
  }
  for (const rpc::PeerId peer : lost) {
    const RankSession& session = sessions_.at(peer);
    const Error error{ErrorCode::kRankLost,
                      control::NamesOf({session.rank}) + " (host " + config_.host + ", pid " + std::to_string(session.pid) +
                          ") did not come back to mlnetd, which was restarted, within " + std::to_string(config_.reconnect_ms) + " ms",
                      "is the process stopped; daemon.reconnect_ms says how long is too long"};
    spdlog::warn("job {}: {}", session.job, error.ToString());
    Tell(session.job, session.incarnation, [rank = session.rank, error](JobView& v) { Fail(v, error, {rank}, NowMs()); });
    EndSession(peer, /*orderly=*/false);
  }
}

// No reply: the rank is in the middle of something else, and listens for pushes.
Result<void> Daemon::OnAttach(rpc::PeerId peer, const rpc::PeerInfo& info, const rpc::Request& request) {
  const auto job = rpc::Get<std::string>(request.params, "job");
  const auto incarnation = rpc::Get<uint64_t>(request.params, "incarnation");
  const auto rank = rpc::Get<int>(request.params, "rank");
  if (!job) return tl::make_unexpected(job.error());
  if (!incarnation) return tl::make_unexpected(incarnation.error());
  if (!rank) return tl::make_unexpected(rank.error());
  if (sessions_.contains(peer)) return Err(ErrorCode::kConflict, "this connection has joined a job already");
  const auto is_it = [&](const auto& s) {
    return s.second.job == *job && s.second.incarnation == *incarnation && s.second.rank == *rank && s.second.absent_until_ms != 0;
  };
  const auto absent = std::find_if(sessions_.begin(), sessions_.end(), is_it);
  if (absent == sessions_.end()) {
    const auto view = FreshJob(*job);
    const bool is_told = view && (*view)->job.incarnation == *incarnation && (*view)->job.state == control::kFailed;
    const Error why = is_told ? FailureOf((*view)->job)
                              : Error{ErrorCode::kCancelled, control::NamesOf({*rank}) + " is not a member of job '" + *job + "' any more", ""};
    server_->Push(peer, {{"event", "job_failed"}, {"code", ErrorCodeName(why.code)}, {"message", why.message}, {"hint", why.hint},
                         {"ranks", is_told ? (*view)->job.ranks : std::vector<int>{}}});
    return {};
  }
  RankSession& session = absent->second;
  if (info.pid != session.pid || info.uid != session.uid) {
    return Err(ErrorCode::kPermission, "pid " + std::to_string(info.pid) + " of user " + std::to_string(info.uid) + " is not " +
                                           control::NamesOf({*rank}) + " of job '" + *job + "'");
  }
  session.absent_until_ms = 0;
  spdlog::info("job {}: rank {}, pid {}, is back", *job, *rank, info.pid);
  auto node = sessions_.extract(absent);
  node.key() = peer;
  sessions_.insert(std::move(node));
  TellAttached(peer, sessions_.at(peer));
  return {};
}

// What may have changed while it could not hear it. A grant that is not the usual one comes with the next pass.
void Daemon::TellAttached(rpc::PeerId peer, const RankSession& session) {
  server_->Push(peer, {{"event", "attached"}});
  if (const JobView* view = FindJob(session.job)) {
    server_->Push(peer, {{"event", "policy"}, {"rto_min_us", view->job.spec.rto_min_us}, {"rto_max_us", view->job.spec.rto_max_us}});
  }
}

}  // namespace mlnet::daemon
