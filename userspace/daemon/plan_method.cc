// SPDX-License-Identifier: Apache-2.0
// What `mlnetctl plan` asks: what the planner would be told for a job, or for ranks on hosts that are named.
// The planner is pure, so the answer is its input: mlnetctl runs it and shows all candidates.
#include <algorithm>

#include "control/plan.h"
#include "daemon/daemon.h"
#include "plan/planner.h"
#include "plan/site.h"

namespace mlnet::daemon {

using control::Json;
using control::JobView;

namespace {

Json ToJson(const control::PlannerTask& task) {
  Json hosts = Json::array();
  for (const plan::Host& host : task.cluster.hosts) {
    hosts.push_back({{"name", host.name}, {"rack", host.rack}, {"rate_bps", host.up_bps}, {"can_aggregate", host.can_aggregate}});
  }
  return {{"schema", "mlnet.plan.task/1"},
          {"hosts", std::move(hosts)},
          {"oversubscription", task.cluster.oversubscription},
          {"host_of_rank", task.job.host_of_rank},
          {"multicast", task.job.multicast},
          {"mtu", task.mtu},
          {"has_rates", task.has_rates},
          {"shape", task.wanted ? Json(plan::NameOf(*task.wanted)) : Json(nullptr)}};
}

// All that could run ranks: those that do not offer themselves for summing.
std::vector<std::string> HostsForRanks(const std::vector<control::HostRecord>& hosts, uint64_t now_ms) {
  std::vector<std::string> names;
  for (const control::HostRecord& host : hosts) {
    const auto sums = [](const control::IfaceRecord& iface) { return iface.aggregator; };
    const bool is_alive = host.running && now_ms <= host.heartbeat_ms + control::kHeartbeatStaleMs;
    if (is_alive && std::none_of(host.ifaces.begin(), host.ifaces.end(), sums)) names.push_back(host.host);
  }
  return names;
}

}  // namespace

Result<Json> Daemon::PlanTask(const Json& params) {
  auto job = rpc::GetOr<std::string>(params, "job", "");
  auto hosts = rpc::GetOr<std::vector<std::string>>(params, "hosts", {});
  auto per_host = rpc::GetOr<uint32_t>(params, "ranks_per_host", 1);
  auto shape = rpc::GetOr<std::string>(params, "shape", "");
  if (!job) return tl::make_unexpected(job.error());
  if (!hosts) return tl::make_unexpected(hosts.error());
  if (!per_host) return tl::make_unexpected(per_host.error());
  if (!shape) return tl::make_unexpected(shape.error());
  auto fresh = store_->LoadOpen({});  // for the heartbeats
  if (!fresh) return tl::make_unexpected(fresh.error());
  JobView asked;
  if (!job->empty()) {
    const auto view = std::find_if(fresh->jobs.begin(), fresh->jobs.end(), [&](const JobView& v) { return v.job.name == *job; });
    if (view == fresh->jobs.end() || view->members.empty()) {
      return Err(ErrorCode::kUnavailable, "job '" + *job + "' has no ranks", "mlnetctl job list; or name hosts: mlnetctl plan --hosts w1,w2");
    }
    asked = *view;
  } else {
    asked.job.spec = config_.job;
    if (hosts->empty()) *hosts = HostsForRanks(fresh->hosts, NowMs());
    if (hosts->empty()) return Err(ErrorCode::kUnavailable, "no host is here that could run ranks", "mlnetctl plan --hosts w1,w2");
    for (const std::string& host : plan::PlaceInOrder(*hosts, *per_host)) {
      asked.members.push_back({0, static_cast<int>(asked.members.size()), host, 0, true, false, 0, ""});
    }
  }
  if (!shape->empty()) asked.job.spec.shape = *shape;
  if (auto ok = control::CheckSpec(asked.job.spec); !ok) return tl::make_unexpected(ok.error());
  const auto task =
      control::TaskOfPlanner({&asked, &fresh->hosts, &fresh->jobs, config_.addressing, NowMs()});
  if (!task) return tl::make_unexpected(task.error());
  return ToJson(*task);
}

}  // namespace mlnet::daemon
