// SPDX-License-Identifier: Apache-2.0
// What ranks call. The connection is the membership: when it closes without leave, the rank is lost.
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/errno_error.h"
#include "control/job.h"
#include "control/plan.h"
#include "control/quota.h"
#include "control/ring.h"
#include "control/tree.h"
#include "daemon/daemon.h"

namespace mlnet::daemon {

using control::Json;
using control::JobView;

namespace {

constexpr uint32_t kJoinTimeoutMaxMs = 24 * 3600 * 1000;

struct JoinParams {
  std::string job;
  control::JoinRequest request;
  uint32_t timeout_ms = 0;
  uint64_t work_bytes = 0;
  uint32_t classes = 0;
  bool mac = false;
};

Result<JoinParams> ReadJoin(const Json& params, uint32_t default_timeout_ms) {
  auto job = rpc::Get<std::string>(params, "job");
  auto rank = rpc::Get<int>(params, "rank");
  auto world_size = rpc::Get<int>(params, "world_size");
  auto timeout_ms = rpc::GetOr<uint32_t>(params, "timeout_ms", default_timeout_ms);
  auto work_bytes = rpc::GetOr<uint64_t>(params, "work_bytes", 0);
  auto classes = rpc::GetOr<uint32_t>(params, "classes", 0);
  auto mac = rpc::GetOr<bool>(params, "mac", false);
  auto pings = rpc::GetOr<bool>(params, "pings", false);
  auto rings = rpc::GetOr<bool>(params, "ring", false);
  if (!job) return tl::make_unexpected(job.error());
  if (!rank) return tl::make_unexpected(rank.error());
  if (!world_size) return tl::make_unexpected(world_size.error());
  if (!timeout_ms) return tl::make_unexpected(timeout_ms.error());
  if (!work_bytes) return tl::make_unexpected(work_bytes.error());
  if (!classes) return tl::make_unexpected(classes.error());
  if (!mac) return tl::make_unexpected(mac.error());
  if (!pings) return tl::make_unexpected(pings.error());
  if (!rings) return tl::make_unexpected(rings.error());
  if (*classes > MLNET_CLASSES_MAX) {
    return Err(ErrorCode::kInvalidArgument, "classes is " + std::to_string(*classes) + ", must be 1 to 8, or 0 for mlnetd's default");
  }
  if (!control::IsName(*job)) {
    return Err(ErrorCode::kInvalidArgument, "job name '" + *job + "' is not 1 to 63 of A-Z a-z 0-9 . _ -");
  }
  return JoinParams{*job, {*rank, *world_size, "", 0, 0, *pings, *rings}, std::min(*timeout_ms, kJoinTimeoutMaxMs), *work_bytes, *classes, *mac};
}

Json RanksOf(const std::vector<control::TreeChild>& children) {
  Json ranks = Json::array();
  for (const control::TreeChild& child : children) ranks.push_back(child.ranks);
  return ranks;
}

Json TreeForRank(const control::Plan& plan, size_t tree, int rank, const mlnet_node& node) {
  const bool is_server = rank == control::kServerRank;  // sends to the root, as its ranks do
  const control::PlanPort& own =
      *PortOfHost(plan, tree, is_server ? plan.server_host : plan.host_of_rank[static_cast<size_t>(rank)]);
  const size_t at = is_server ? 0 : NodeOfRank(plan, tree, rank);
  const control::PlanPort& summing = PortOf(plan, tree, at);
  Json pools = Json::array();
  for (uint32_t i = 0; i < NumPools(plan); ++i) {
    const control::PoolSize size = control::PoolOf(plan, i);
    pools.push_back({{"class", MLNET_CLASS(size.class_stream)}, {"stream", MLNET_STREAM(size.class_stream)},
                     {"log2_slots", size.log2_slots}, {"cell_base", node.pools[size.class_stream].cell_base}});
  }
  return {{"tree", tree},
          {"child", is_server ? MLNET_CHILD_ALL : ChildIndexOf(plan, tree, rank)},
          {"weight", plan.trees[tree].weight},
          {"address", own.address},
          {"aggregator", summing.host == own.host ? own.local_address : summing.address},
          {"children", RanksOf(ChildrenOf(plan, tree, at))},
          {"above", at != 0 ? RanksOf(ChildrenOf(plan, tree, NodeAbove(plan, tree, at))) : Json::array()},
          {"pools", pools}};
}

}  // namespace

void Daemon::OnRequest(rpc::PeerId peer, const rpc::PeerInfo& info, rpc::Request request) {
  if (request.method == "join") {
    if (auto ok = OnJoin(peer, info, request); !ok) {
      spdlog::info("join by pid {} refused: {}", info.pid, ok.error().ToString());
      server_->ReplyError(peer, request.id, ok.error());
    }
    return;
  }
  if (request.method == "attach") {
    if (auto ok = OnAttach(peer, info, request); !ok) {
      spdlog::warn("attach by pid {} refused: {}", info.pid, ok.error().ToString());
      server_->ReplyError(peer, request.id, ok.error());
    }
    return;
  }
  if (request.method == "shrink") {
    if (auto ok = OnShrink(peer, request); !ok) server_->ReplyError(peer, request.id, ok.error());
    return;
  }
  if (OnRankMethod(peer, request)) return;
  auto result = OperatorMethod(request);
  if (result) server_->Reply(peer, request.id, *result);
  else server_->ReplyError(peer, request.id, result.error());
}

void Daemon::OnClosed(rpc::PeerId peer) {
  waiting_.erase(peer);
  EndSession(peer, /*orderly=*/false);
}

// Wakes the loop when the process ends; without one (it has ended already) the connection tells.
Fd Daemon::WatchProcess(pid_t pid) const {
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  epoll_event event{EPOLLIN, {.fd = process.get()}};
  if (process) ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, process.get(), &event);
  return process;
}

Result<void> Daemon::OnJoin(rpc::PeerId peer, const rpc::PeerInfo& info, const rpc::Request& request) {
  if (sessions_.contains(peer) || waiting_.contains(peer)) {
    return Err(ErrorCode::kConflict, "this connection has joined a job already", "open another one");
  }
  auto params = ReadJoin(request.params, config_.job.timeout_ms);
  if (!params) return tl::make_unexpected(params.error());
  if (!ifaces_.AnyAttached()) {
    const Json problems = ifaces_.Problems();
    return Err(ErrorCode::kUnavailable,
               "host " + config_.host + " has no attached interface: " + problems.front().value("message", ""),
               problems.front().value("hint", "mlnetctl iface attach NAME"));
  }
  params->request.host = config_.host;
  params->request.pid = info.pid;
  params->request.uid = info.uid;
  if (auto ok = CheckQuota(params->request, params->job); !ok) return ok;
  const uint64_t now_ms = NowMs();
  WaitingJoin join{request.id, params->job, params->request, params->work_bytes, params->classes, params->mac, now_ms, now_ms + params->timeout_ms, 0};
  auto joined = TryJoin(peer, join);
  if (!joined) return tl::make_unexpected(joined.error());
  if (*joined) return {};
  spdlog::info("job {}: rank {}, pid {}, is waiting for the store at {}", join.job, join.request.rank, info.pid, store_->Outage());
  ++join.num_tries;
  waiting_[peer] = std::move(join);
  return {};
}

Result<void> Daemon::CheckQuota(const control::JoinRequest& request, const std::string& job) const {
  std::map<std::string, control::Holder> holders;  // a job once, however many ranks
  for (const auto& [peer, session] : sessions_) holders[session.job] = {session.job, session.uid, 0};
  std::vector<control::Holder> list;
  for (const auto& [name, holder] : holders) list.push_back(holder);
  return control::CheckJobQuota(config_.quota, config_.host, {job, request.uid, 0}, list);
}

Result<void> Daemon::CheckSlots(const JobView& view) {
  std::vector<control::Holder> holders;
  for (const JobView& other : snapshot_.jobs) {
    if (jobs_.Find(other.job.name) != nullptr) holders.push_back({other.job.name, other.job.uid, SlotsHeld(other.job.plan, config_.host)});
  }
  return control::CheckSlotQuota(config_.quota, config_.host,
                                 {view.job.name, view.job.uid, SlotsHeld(view.job.plan, config_.host)}, holders);
}

void Daemon::AnswerJoin(rpc::PeerId peer, RankSession& session, const JobView& view) {
  const LocalJob& local = *jobs_.Find(session.job);
  const control::Plan& plan = view.job.plan;
  const bool is_server = session.rank == control::kServerRank;
  const auto index = is_server ? 0 : static_cast<size_t>(std::find(local.ranks.begin(), local.ranks.end(), session.rank) - local.ranks.begin());
  Json trees = Json::array();
  for (size_t t = 0; t < plan.trees.size(); ++t) trees.push_back(TreeForRank(plan, t, session.rank, local.kernel->node(t)));
  Json result = {{"schema", "mlnet.join/1"},
                       {"job", session.job},
                       {"incarnation", session.incarnation},
                       {"job_id", plan.job_id},
                       {"epoch", plan.epoch},
                       {"rank", session.rank},
                       {"world_size", view.job.world_size},
                       {"local_index", index},
                       {"port", plan.port},
                       {"blocks", plan.blocks},
                       {"cells", InboxCells(plan)},
                       {"multicast", view.job.fan == "multicast"},
                       {"timeout_ms", view.job.spec.timeout_ms},
                       {"ping_ms", view.job.spec.lost_ms / control::kPingsPerLoss},
                       {"rto_min_us", view.job.spec.rto_min_us},
                       {"rto_max_us", view.job.spec.rto_max_us},
                       {"window_first", view.job.spec.window_first},
                       {"server", !plan.server_host.empty()},
                       {"ring", IsInRing(view.job)},
                       {"trees", trees}};
  if (session.shrinking) {
    result["shrunk"] = {{"former_ranks", session.shrinking->former_ranks}, {"why", session.shrinking->why}};
    session.shrinking.reset();
  }
  if (!view.job.key.empty()) result["key"] = view.job.key;
  const datapath::HostJob& kernel = *local.kernel;
  std::vector<int> fds = is_server ? std::vector{kernel.server_inbox_fd(), kernel.server_wake_fd(), kernel.server_ring_fd()}
                                   : std::vector{kernel.inbox_fd(), kernel.wake_fd(), kernel.ring_fd(index)};
  // Held by ranks the memberships last while this daemon is restarted. What does not fit is only slower then.
  for (const Membership& membership : local.memberships) {
    if (fds.size() < rpc::kMessageFdsMax) fds.push_back(membership.fd());
  }
  server_->Reply(peer, session.request_id, result, fds);
  session.request_id = 0;
}

bool Daemon::OnRankMethod(rpc::PeerId peer, const rpc::Request& request) {
  const std::string& method = request.method;
  if (method != "report" && method != "describe" && method != "abort" && method != "traced" && method != "ring_port" &&
      method != "leave") {
    return false;
  }
  const auto it = sessions_.find(peer);
  if (it == sessions_.end()) {
    server_->ReplyError(peer, request.id, Error{ErrorCode::kInvalidArgument, "'" + method + "' before join", ""});
    return true;
  }
  RankSession& session = it->second;
  if (method == "report") {
    session.report = request.params;
    session.has_news = true;
    const uint64_t done_bytes = rpc::GetOr<uint64_t>(request.params, "bytes", 0).value_or(0);
    if (done_bytes > session.done_bytes) session.moved_ms = NowMs();
    session.done_bytes = std::max(session.done_bytes, done_bytes);
  } else if (method == "describe") {
    OnDescribe(session, request);
  } else if (method == "abort") {
    OnAbort(session, request);
  } else if (method == "traced") {
    OnTraced(session, request);
  } else if (method == "ring_port") {
    OnRingPort(session, request);
  } else {
    EndSession(peer, /*orderly=*/true);
  }
  server_->Reply(peer, request.id, Json::object());
  return true;
}

void Daemon::OnDescribe(const RankSession& session, const rpc::Request& request) {
  const auto text = rpc::GetOr<std::string>(request.params, "text", "");
  const auto fingerprint = rpc::GetOr<uint32_t>(request.params, "fingerprint", 0);
  Tell(session.job, session.incarnation, [rank = session.rank, text, fingerprint](JobView& view) {
    if (view.job.mismatch_ms == 0) view.job.mismatch_ms = NowMs();
    for (control::MemberRecord& member : view.members) {
      if (member.rank != rank) continue;
      member.collective = text.value_or("");
      member.fingerprint = fingerprint.value_or(0);
    }
  });
}

void Daemon::OnAbort(const RankSession& session, const rpc::Request& request) {
  const auto code = rpc::GetOr<std::string>(request.params, "code", "E_CANCELLED");
  const auto message = rpc::GetOr<std::string>(request.params, "message", "");
  const Error error{ErrorCodeFromName(code.value_or("")).value_or(ErrorCode::kCancelled),
                    control::NamesOf({session.rank}) + " gave up: " + message.value_or(""), ""};
  spdlog::warn("job {}: {}", session.job, error.ToString());
  Tell(session.job, session.incarnation, [rank = session.rank, error](JobView& view) {
    // Of a mismatch one rank knows half: the job fails when all have said what they called.
    // Who misses another rank is not the one that is lost.
    const auto ranks = error.code == ErrorCode::kRankLost ? std::vector<int>{} : std::vector{rank};
    if (error.code != ErrorCode::kMismatch) Fail(view, error, ranks, NowMs());
    else if (view.job.mismatch_ms == 0) view.job.mismatch_ms = NowMs();
  });
}

void Daemon::EndSession(rpc::PeerId peer, bool orderly) {
  const auto it = sessions_.find(peer);
  if (it == sessions_.end()) return;
  const RankSession session = std::move(it->second);
  sessions_.erase(it);
  if (const auto trace = traces_.find(session.job); trace != traces_.end()) trace->second.RankGone(session.rank);
  if (session.has_news) {
    const Store::Counters last{control::NamesOf({session.rank}), session.report};
    if (auto ok = store_->SaveCounters(session.job, session.incarnation, {last}); !ok) WarnOfStore("", ok.error());
  }
  if (!orderly) spdlog::info("job {}: rank {} closed its connection", session.job, session.rank);
  Tell(session.job, session.incarnation, [rank = session.rank, orderly](JobView& view) { MemberGone(view, rank, orderly, NowMs()); });
}

}  // namespace mlnet::daemon
