// SPDX-License-Identifier: Apache-2.0
// What mlnetctl asks: state, interfaces, jobs, counters.
#include <unistd.h>

#include <map>

#include "control/job.h"
#include "control/ring.h"
#include "daemon/daemon.h"
#include "daemon/probe.h"
#include "daemon/views.h"
#include "datapath/netdev.h"
#include "mlnet/limits.h"

namespace mlnet::daemon {

using control::Json;
using control::JobView;

namespace {

Error NoSuchJob(const std::string& name) {
  return Error{ErrorCode::kUnavailable, "there is no job '" + name + "'", "mlnetctl job list"};
}

Json JobSummaries(const Snapshot& snapshot) {
  Json jobs = Json::array();
  for (const JobView& view : snapshot.jobs) {
    if (!view.job.deleted) jobs.push_back(JobSummary(view));
  }
  return jobs;
}

// Takes the members that are there; `spec` keeps its values for the others.
Result<void> ReadSpec(const Json& params, control::JobSpec& spec) {
  const std::map<std::string, uint32_t*> numbers = {{"slots", &spec.slots},
                                                    {"classes", &spec.classes},
                                                    {"timeout_ms", &spec.timeout_ms},
                                                    {"deadline_ms", &spec.deadline_ms},
                                                    {"rto_min_us", &spec.rto_min_us},
                                                    {"rto_max_us", &spec.rto_max_us},
                                                    {"window_first", &spec.window_first},
                                                    {"weight", &spec.weight},
                                                    {"ceiling", &spec.ceiling},
                                                    {"lost_ms", &spec.lost_ms}};
  const std::map<std::string, std::string*> texts = {
      {"multicast", &spec.multicast}, {"shape", &spec.shape}, {"order", &spec.order}, {"root", &spec.root}, {"require_mode", &spec.require_mode}};
  const auto take = [&params](const std::string& key, auto& out) -> Result<void> {
    auto value = rpc::GetOr(params, key.c_str(), out);
    if (!value) return tl::make_unexpected(value.error());
    out = *value;
    return {};
  };
  for (const auto& [key, value] : params.items()) {
    Result<void> ok;
    if (const auto number = numbers.find(key); number != numbers.end()) ok = take(key, *number->second);
    else if (const auto text = texts.find(key); text != texts.end()) ok = take(key, *text->second);
    else if (key == "work_bytes") ok = take(key, spec.work_bytes);
    else if (key == "mac") ok = take(key, spec.mac);
    else if (key != "name" && key != "world_size") ok = Err(ErrorCode::kInvalidArgument, "a job has no '" + key + "'", "mlnetctl job show NAME -j shows what can be set, under spec");
    if (!ok) return ok;
  }
  return control::CheckSpec(spec);
}

Json Version(const control::Config& config) {
  return {{"schema", "mlnet.version/1"}, {"version", MLNET_VERSION},   {"abi", MLNET_ABI_VERSION}, {"proto", MLNET_PROTO_VERSION},
          {"libbpf", datapath::LibbpfVersion()}, {"instance", config.instance}, {"host", config.host}};
}

}  // namespace

Result<Json> Daemon::OperatorMethod(const rpc::Request& request) {
  using Method = Result<Json> (Daemon::*)(const Json&);
  static const std::map<std::string, Method> kMethods = {
      {"iface.attach", &Daemon::IfaceAttach}, {"iface.detach", &Daemon::IfaceDetach}, {"job.create", &Daemon::JobCreate},
      {"job.set", &Daemon::JobSet},           {"job.show", &Daemon::JobShow},         {"job.delete", &Daemon::JobDelete},
      {"job.levels", &Daemon::JobLevels},     {"stats", &Daemon::Stats},              {"top", &Daemon::Top},
      {"plan", &Daemon::PlanTask},            {"qos.set", &Daemon::QosSet},           {"qos.clear", &Daemon::QosClear},
      {"qos.show", &Daemon::QosShow},         {"trace.begin", &Daemon::TraceBegin},   {"trace.take", &Daemon::TraceTake}};
  // What is asked for may have been decided elsewhere a moment ago.
  if (auto fresh = store_->Load()) snapshot_ = std::move(*fresh);
  if (request.method == "version") return Version(config_);
  if (request.method == "status") return Status();
  if (request.method == "iface.list") return Json{{"schema", "mlnet.iface.list/1"}, {"ifaces", ifaces_.List()}};
  if (request.method == "job.list") return Json{{"schema", "mlnet.job.list/1"}, {"jobs", JobSummaries(snapshot_)}};
  if (request.method == "probe") return ProbeKernel(config_.pin_root, ifaces_.List());
  const auto it = kMethods.find(request.method);
  if (it == kMethods.end()) {
    return Err(ErrorCode::kInvalidArgument, "unknown method '" + request.method + "'", "is mlnetctl newer than mlnetd?");
  }
  return (this->*it->second)(request.params);
}

Result<Json> Daemon::Status() {
  Json problems = ifaces_.Problems();
  if (const std::string outage = store_->Outage(); !outage.empty()) {
    problems.push_back({{"message", kNoAnswer + outage}, {"hint", "jobs that run go on, new ones wait; see etcd there"}});
  }
  for (const auto& [peer, join] : waiting_) {
    problems.push_back({{"message", control::NamesOf({join.request.rank}) + " of job '" + join.job + "' has been waiting for the store for " +
                                        std::to_string((NowMs() - join.began_ms) / 1000) + " s"},
                        {"hint", ""}});
  }
  for (const JobView& view : snapshot_.jobs) {
    if (!IsInRing(view.job) || HasEnded(view.job)) continue;
    problems.push_back({{"message", "job '" + view.job.name + "' has been summing in user space for " +
                                        std::to_string((NowMs() - view.job.ring.began_ms) / 1000) + " s: " + view.job.ring.why},
                        {"hint", "it goes back to the kernel when its ranks join it anew"}});
  }
  return Json{{"schema", "mlnet.status/1"},
              {"state", problems.empty() ? "ok" : "degraded"},
              {"problems", problems},
              {"host", config_.host},
              {"instance", config_.instance},
              {"pid", ::getpid()},
              {"uptime_s", (NowMs() - started_ms_) / 1000},
              {"ifaces", ifaces_.List()},
              {"jobs", JobSummaries(snapshot_)},
              {"store", config_.store}};
}

Result<Json> Daemon::IfaceAttach(const Json& params) {
  control::IfaceConfig config;
  auto match = rpc::GetOr<std::string>(params, "match", "");
  if (!match) return tl::make_unexpected(match.error());
  config.match = *match;
  auto name = config.match.empty() ? rpc::Get<std::string>(params, "name") : std::string();
  if (!name) return tl::make_unexpected(name.error());
  for (const control::IfaceConfig& configured : config_.ifaces) {
    if (!name->empty() && configured.name == *name) config.rate_bps = configured.rate_bps;  // the link's, however it is attached
  }
  config.name = *name;
  auto mode = rpc::GetOr<std::string>(params, "mode", config.mode);
  auto share = rpc::GetOr<std::string>(params, "share", config.share);
  auto aggregator = rpc::GetOr<bool>(params, "aggregator", false);
  if (!mode) return tl::make_unexpected(mode.error());
  if (!share) return tl::make_unexpected(share.error());
  if (!aggregator) return tl::make_unexpected(aggregator.error());
  if (*mode != "native" && *mode != "generic" && *mode != "auto") {
    return Err(ErrorCode::kInvalidArgument, "mode is '" + *mode + "', must be one of: native, generic, auto");
  }
  if (*share != "exclusive" && *share != "shared") {
    return Err(ErrorCode::kInvalidArgument, "share is '" + *share + "', must be one of: exclusive, shared");
  }
  config.mode = *mode;
  config.share = *share;
  config.aggregator = *aggregator;
  if (!config.match.empty()) {
    auto attached = ifaces_.AttachMatching(config);
    PublishHost();
    return attached;
  }
  if (auto ok = ifaces_.Attach(config); !ok) return tl::make_unexpected(ok.error());
  PublishHost();
  Json shown = ifaces_.Show(*name);
  shown["schema"] = "mlnet.iface/1";
  return shown;
}

Result<Json> Daemon::IfaceDetach(const Json& params) {
  auto name = rpc::Get<std::string>(params, "name");
  if (!name) return tl::make_unexpected(name.error());
  for (const auto& [job, local] : jobs_.all()) {
    const auto is_used = [&](const control::PlanPort& port) { return port.host == config_.host && port.iface == *name; };
    if (std::any_of(local.plan.ports.begin(), local.plan.ports.end(), is_used)) {
      return Err(ErrorCode::kConflict, *name + " is in use by job '" + job + "'", "end the job first: mlnetctl job delete " + job);
    }
  }
  if (auto ok = qos_.Clear(*name); !ok) return tl::make_unexpected(ok.error());  // nothing is marked any more
  if (auto ok = ifaces_.Detach(*name); !ok) return tl::make_unexpected(ok.error());
  PublishHost();
  Json shown = ifaces_.Show(*name);
  shown["schema"] = "mlnet.iface/1";
  return shown;
}

Result<Json> Daemon::JobCreate(const Json& params) {
  auto name = rpc::Get<std::string>(params, "name");
  auto world_size = rpc::Get<int>(params, "world_size");
  if (!name) return tl::make_unexpected(name.error());
  if (!world_size) return tl::make_unexpected(world_size.error());
  if (!control::IsName(*name)) {
    return Err(ErrorCode::kInvalidArgument, "job name '" + *name + "' is not 1 to 63 of A-Z a-z 0-9 . _ -");
  }
  if (*world_size < 1 || *world_size > kRanksMax) {
    return Err(ErrorCode::kInvalidArgument, "world_size is " + std::to_string(*world_size) + ", must be 1 to " + std::to_string(kRanksMax));
  }
  control::JobSpec spec = config_.job;
  if (auto ok = ReadSpec(params, spec); !ok) return tl::make_unexpected(ok.error());
  auto created = store_->UpdateJob(*name, [&](std::optional<JobView>& view) -> Result<void> {
    if (view && !HasEnded(view->job)) {
      return Err(ErrorCode::kConflict, "job '" + *name + "' exists and is " + view->job.state, "mlnetctl job delete " + *name);
    }
    if (view && IsConnected(*view)) {
      return Err(ErrorCode::kConflict, "job '" + *name + "' is " + view->job.state + ", but ranks have not left it yet", "");
    }
    JobView fresh;
    fresh.job.name = *name;
    fresh.job.incarnation = NowMs();
    fresh.job.world_size = *world_size;
    fresh.job.declared = true;
    fresh.job.spec = spec;
    fresh.job.job_id = view ? view->job.job_id : 0;
    view = std::move(fresh);
    return {};
  });
  if (!created) return tl::make_unexpected(created.error());
  return ShowJob(*name);
}

Result<void> Daemon::UpdateKnownJob(const std::string& name, const std::function<Result<void>(JobView&)>& change) {
  return store_->UpdateJob(name, [&](std::optional<JobView>& view) -> Result<void> {
    if (!view || view->job.deleted) return tl::make_unexpected(NoSuchJob(name));
    return change(*view);
  });
}

Result<Json> Daemon::JobSet(const Json& params) {
  auto name = rpc::Get<std::string>(params, "name");
  if (!name) return tl::make_unexpected(name.error());
  auto set = UpdateKnownJob(*name, [&](JobView& view) -> Result<void> {
    control::JobSpec spec = view.job.spec;
    if (auto ok = ReadSpec(params, spec); !ok) return ok;
    const bool is_shape_new = spec.slots != view.job.spec.slots || spec.classes != view.job.spec.classes ||
                              spec.multicast != view.job.spec.multicast || spec.shape != view.job.spec.shape ||
                              spec.root != view.job.spec.root || spec.mac != view.job.spec.mac;
    if (is_shape_new && IsActive(view.job)) {
      return Err(ErrorCode::kConflict, "slots, classes, shape, root, multicast and mac of job '" + *name + "' cannot change while it runs",
                 "live are weight, order, ceiling, lost_ms, require_mode, work_bytes, rto_min_us and rto_max_us");
    }
    const bool is_pinged_too_seldom = spec.lost_ms != 0 && (view.job.spec.lost_ms == 0 || spec.lost_ms < view.job.spec.lost_ms);
    if (is_pinged_too_seldom && IsActive(view.job)) {
      return Err(ErrorCode::kConflict, "lost_ms of job '" + *name + "' cannot become shorter while it runs: its ranks ping as often as they began to",
                 "raise it, or set it to 0");
    }
    view.job.spec = spec;
    return {};
  });
  if (!set) return tl::make_unexpected(set.error());
  return ShowJob(*name);
}

// None where the store does not answer.
std::vector<Daemon::Counters> Daemon::CountersOf(const std::vector<const JobView*>& views) {
  std::vector<Store::Life> lives;
  for (const JobView* view : views) lives.push_back({view->job.name, view->job.incarnation});
  return store_->LoadCounters(lives).value_or(std::vector<Counters>(views.size()));
}

Result<const JobView*> Daemon::FreshJob(const std::string& name) {
  Flush();  // this host's own counters as of now
  auto fresh = store_->Load();
  if (!fresh) return tl::make_unexpected(fresh.error());
  snapshot_ = std::move(*fresh);
  const JobView* view = FindJob(name);
  if (view == nullptr || view->job.deleted) return tl::make_unexpected(NoSuchJob(name));
  return view;
}

Result<Json> Daemon::ShowJob(const std::string& name) {
  auto view = FreshJob(name);
  if (!view) return tl::make_unexpected(view.error());
  return JobDetail(**view, CountersOf({*view})[0]);
}

Result<Json> Daemon::JobShow(const Json& params) {
  auto name = rpc::Get<std::string>(params, "name");
  if (!name) return tl::make_unexpected(name.error());
  return ShowJob(*name);
}

Result<Json> Daemon::JobDelete(const Json& params) {
  auto name = rpc::Get<std::string>(params, "name");
  if (!name) return tl::make_unexpected(name.error());
  auto shown = ShowJob(*name);
  if (!shown) return shown;
  auto deleted = UpdateKnownJob(*name, [&](JobView& view) -> Result<void> {
    Fail(view, Error{ErrorCode::kCancelled, "job '" + *name + "' was deleted by an operator", ""}, {}, NowMs());
    view.job.deleted = true;
    return {};
  });
  if (!deleted) return tl::make_unexpected(deleted.error());
  (*shown)["state"] = "deleted";
  return shown;
}

Result<Json> Daemon::Stats(const Json& params) {
  auto only = rpc::GetOr<std::string>(params, "job", "");
  if (!only) return tl::make_unexpected(only.error());
  Flush();
  Json stats = StatsToJson(jobs_.Total());
  stats["schema"] = "mlnet.stats/1";
  stats["host"] = config_.host;
  stats["tags"] = ifaces_.TagCounters();
  stats["jobs"] = Json::object();
  constexpr const char* kOfRanks[] = {"retransmits", "summed_in_kernel", "summed_in_user_space", "summed_in_ring"};
  for (const char* key : kOfRanks) stats[key] = uint64_t{0};
  std::vector<const JobView*> views;
  for (const JobView& view : snapshot_.jobs) {
    if (!view.job.deleted && (only->empty() || view.job.name == *only)) views.push_back(&view);
  }
  const auto counters = CountersOf(views);
  for (size_t i = 0; i < views.size(); ++i) {
    const Json totals = JobTotals(counters[i]);
    for (const char* key : kOfRanks) stats[key] = stats[key].get<uint64_t>() + totals[key].get<uint64_t>();
    stats["jobs"][views[i]->job.name] = totals;
  }
  if (!only->empty() && stats["jobs"].empty()) return tl::make_unexpected(NoSuchJob(*only));
  if (only->empty()) return stats;
  // One job: its counters on all hosts take the place of this host's.
  const Json totals = stats["jobs"][*only];
  for (const char* key : {"verdicts", "bytes_in", "contributions", "words_summed", "results"}) stats[key] = totals[key];
  return stats;
}

}  // namespace mlnet::daemon
