// SPDX-License-Identifier: Apache-2.0
// `mlnetctl trace`: for some time the ranks of this host record their collectives, and the kernel tells of each sum it completes.
#include <spdlog/spdlog.h>

#include <cstdint>
#include <ctime>

#include "daemon/daemon.h"

namespace mlnet::daemon {

using control::Json;

namespace {

constexpr uint32_t kTraceMaxMs = 60'000;
constexpr uint64_t kForgottenMs = 30'000;  // nobody has fetched it
constexpr size_t kRowsOfAnswer = 256;      // at most 100 bytes of text and 10 numbers each: below the limit of a message

int64_t ReadNs(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// What CLOCK_REALTIME is ahead of CLOCK_MONOTONIC: with it timelines of several hosts are laid over each other. The closest of some
// readings: in between the process may have to wait for a processor.
int64_t ClockOffsetNs() {
  int64_t offset_ns = 0, closest_ns = INT64_MAX;
  for (int i = 0; i < 10; ++i) {
    const int64_t before_ns = ReadNs(CLOCK_MONOTONIC), real_ns = ReadNs(CLOCK_REALTIME), after_ns = ReadNs(CLOCK_MONOTONIC);
    if (after_ns - before_ns >= closest_ns) continue;
    closest_ns = after_ns - before_ns;
    offset_ns = real_ns - before_ns - closest_ns / 2;
  }
  return offset_ns;
}

}  // namespace

Result<Json> Daemon::TraceBegin(const Json& params) {
  auto name = rpc::Get<std::string>(params, "name");
  auto ms = rpc::GetOr<uint32_t>(params, "ms", 2'000);
  if (!name) return tl::make_unexpected(name.error());
  if (!ms) return tl::make_unexpected(ms.error());
  if (*ms == 0 || *ms > kTraceMaxMs) {
    return Err(ErrorCode::kInvalidArgument, "a trace takes 1 to " + std::to_string(kTraceMaxMs) + " ms, not " + std::to_string(*ms));
  }
  auto view = FreshJob(*name);
  if (!view) return tl::make_unexpected(view.error());
  LocalJob* local = jobs_.Find(*name);
  if (local == nullptr || (*view)->job.state != control::kReady) {
    return Err(ErrorCode::kUnavailable, "job '" + *name + "' does not run on host " + config_.host + " (it is " + (*view)->job.state + ")",
               "run it on a host of its ranks or sums: mlnetctl job show " + *name);
  }
  if (traces_.contains(*name)) {
    return Err(ErrorCode::kConflict, "job '" + *name + "' is being traced on this host already", "try again when that is over");
  }
  if (auto ok = jobs_.SetTracing(*local, true); !ok) return tl::make_unexpected(ok.error());
  traces_.emplace(*name, Trace(local->incarnation, NowMs() + *ms));
  TellTracing(*name, true);
  return Json{{"schema", "mlnet.trace/1"}, {"name", *name}, {"host", config_.host}, {"ms", *ms}, {"clock_offset_ns", ClockOffsetNs()}};
}

Result<Json> Daemon::TraceTake(const Json& params) {
  auto name = rpc::Get<std::string>(params, "name");
  if (!name) return tl::make_unexpected(name.error());
  const auto it = traces_.find(*name);
  if (it == traces_.end()) return Err(ErrorCode::kUnavailable, "job '" + *name + "' is not being traced on this host", "mlnetctl trace " + *name);
  Json answer = it->second.Take(kRowsOfAnswer, NowMs());
  answer["schema"] = "mlnet.trace.rows/1";
  answer["lost"] = it->second.lost();
  if (answer["is_over"] == true) traces_.erase(it);
  return answer;
}

std::set<int> Daemon::TellTracing(const std::string& job, bool is_on) {
  std::set<int> told;
  for (const auto& [peer, session] : sessions_) {
    if (session.job != job || session.request_id != 0 || session.rank == control::kServerRank) continue;
    server_->Push(peer, {{"event", "trace"}, {"on", is_on}});
    told.insert(session.rank);
  }
  return told;
}

void Daemon::EndTraces() {
  const uint64_t now_ms = NowMs();
  for (auto it = traces_.begin(); it != traces_.end();) {
    auto& [name, trace] = *it;
    LocalJob* local = jobs_.Find(name);
    const bool is_gone = local == nullptr || local->incarnation != trace.incarnation();
    if (!trace.has_ended() && (is_gone || now_ms >= trace.until_ms())) {
      if (!is_gone) {
        if (auto ok = jobs_.SetTracing(*local, false); !ok) spdlog::error("job {}: {}", name, ok.error().ToString());
      }
      trace.End(is_gone ? std::set<int>{} : TellTracing(name, false));
    }
    it = now_ms >= trace.until_ms() + kForgottenMs ? traces_.erase(it) : std::next(it);
  }
}

void Daemon::OnTraced(const RankSession& session, const rpc::Request& request) {
  const auto trace = traces_.find(session.job);
  if (trace == traces_.end()) return;
  const auto records = request.params.find("records");
  const bool is_last = rpc::GetOr<bool>(request.params, "is_last", false).value_or(false);
  trace->second.AddRecords(session.rank, records == request.params.end() ? Json::array() : *records, is_last);
}

}  // namespace mlnet::daemon
