// SPDX-License-Identifier: Apache-2.0
#include "daemon/views.h"

#include <algorithm>

#include "control/job.h"
#include "control/plan.h"
#include "control/ring.h"
#include "control/shrink.h"
#include "control/tree.h"
#include "daemon/levels.h"

namespace mlnet::daemon {

using control::Json;
using control::JobView;

namespace {

constexpr const char* kKernelTotals[] = {"bytes_in", "contributions", "words_summed", "results"};
constexpr const char* kRankTotals[] = {"packets_sent", "retransmits", "early_resends", "summed_in_kernel", "summed_in_user_space", "summed_in_ring",
                                       "probes", "wide_blocks", "nonfinite_packets", "repairs", "held", "busy", "marked"};

void AddVerdicts(Json& to, const Json& from) {
  for (const auto& [name, row] : from.items()) {
    if (!to.contains(name)) to[name] = row;
    else to[name]["count"] = Count(to[name], "count") + Count(row, "count");
  }
}

bool IsPrepared(const JobView& view, const std::string& host) {
  return std::any_of(view.hosts.begin(), view.hosts.end(), [&](const auto& h) { return h.host == host && h.prepared; });
}

// Null: the job has none, or it has not joined.
Json ServerOf(const JobView& view) {
  for (const control::MemberRecord& m : view.members) {
    if (m.rank == control::kServerRank) return {{"host", m.host}, {"pid", m.pid}, {"joined", m.connected}, {"left", m.left}};
  }
  return nullptr;
}

bool IsPlanned(const control::Plan& plan) { return !plan.trees.empty(); }

Json Members(const JobView& view, const std::vector<Store::Counters>& counters) {
  Json members = Json::array();
  for (int rank = 0; rank < view.job.world_size; ++rank) {
    Json row = {{"rank", rank}, {"host", nullptr}, {"address", nullptr}, {"pid", nullptr}, {"joined", false}, {"ready", false},
                {"left", false}, {"stats", Json::object()}};
    for (const control::MemberRecord& m : view.members) {
      if (m.rank != rank) continue;
      row["host"] = m.host;
      row["pid"] = m.pid;
      row["joined"] = m.connected;
      row["left"] = m.left;
      row["ready"] = IsActive(view.job) && IsPrepared(view, m.host);
    }
    if (IsPlanned(view.job.plan)) {
      const auto* port = PortOfHost(view.job.plan, 0, view.job.plan.host_of_rank.at(static_cast<size_t>(rank)));
      if (port != nullptr) row["address"] = port->address;
    }
    if (const Json* report = BodyOf(counters, "rank " + std::to_string(rank))) row["stats"] = *report;
    members.push_back(std::move(row));
  }
  return members;
}

Json Pools(const control::Plan& plan) {
  Json pools = Json::array();
  for (uint32_t c = 0; c < plan.classes; ++c) {
    pools.push_back({{"class", c}, {"stream", 0}, {"log2_slots", plan.log2_slots}, {"slots", 1u << plan.log2_slots}});
  }
  return pools;
}

Json Ports(const control::Plan& plan) {
  Json ports = Json::array();
  for (const control::PlanPort& port : plan.ports) {
    if (port.host.empty()) continue;
    ports.push_back({{"host", port.host}, {"iface", port.iface}, {"address", port.address}, {"ranks", LocalRanks(plan, port.host)}});
  }
  return ports;
}

// Names alone: with many hosts and trees a message would not hold more.
Json Trees(const control::Plan& plan) {
  Json trees = Json::array();
  if (HasNobodyToSum(plan)) return trees;
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    Json parents = Json::object(), sums = Json::array();
    for (size_t n = 0; n < plan.trees[t].nodes.size(); ++n) {
      const std::string& host = PortOf(plan, t, n).host;
      parents[host] = n == 0 ? Json(nullptr) : Json(PortOf(plan, t, NodeAbove(plan, t, n)).host);
      if (IsSumming(plan, t, n)) sums.push_back(host);
    }
    trees.push_back({{"aggregator", RootOf(plan, t).host}, {"weight", plan.trees[t].weight}, {"parents", parents}, {"sums", sums}});
  }
  return trees;
}

}  // namespace

Json JobSummary(const JobView& view) {
  const control::JobRecord& job = view.job;
  const auto joined = std::count_if(view.members.begin(), view.members.end(), [](const auto& m) { return m.connected && m.rank != control::kServerRank; });
  const bool is_planned = IsPlanned(job.plan);
  const auto or_null = [](bool is_there, auto value) { return is_there ? Json(value) : Json(nullptr); };
  return {{"name", job.name},
          {"id", or_null(is_planned, job.plan.job_id)},
          {"epoch", or_null(is_planned, job.plan.epoch)},
          {"state", job.state},
          {"mode", or_null(is_planned, IsInRing(job) ? "ring" : "kernel")},
          {"world_size", job.world_size},
          {"joined", joined},
          {"aggregator", or_null(is_planned && !HasNobodyToSum(job.plan), NamesOfAggregators(job.plan))},
          {"reason", or_null(job.state == control::kFailed, job.reason)}};
}

Json JobTotals(const std::vector<Store::Counters>& counters) {
  Json totals = {{"verdicts", Json::object()}};
  for (const char* key : kKernelTotals) totals[key] = uint64_t{0};
  for (const char* key : kRankTotals) totals[key] = uint64_t{0};
  for (const Store::Counters& one : counters) {
    const bool is_host = one.source.starts_with("host ");
    if (is_host) AddVerdicts(totals["verdicts"], one.body.value("verdicts", Json::object()));
    const auto add = [&](const char* key) { totals[key] = Count(totals, key) + Count(one.body, key); };
    if (is_host) std::for_each(std::begin(kKernelTotals), std::end(kKernelTotals), add);
    else std::for_each(std::begin(kRankTotals), std::end(kRankTotals), add);
  }
  return totals;
}

Json JobDetail(const JobView& view, const std::vector<Store::Counters>& counters) {
  const control::JobRecord& job = view.job;
  Json detail = JobSummary(view);
  const Json totals = JobTotals(counters);
  detail["schema"] = "mlnet.job/1";
  detail["code"] = job.state == control::kFailed ? Json(job.code) : Json(nullptr);
  detail["hint"] = job.hint;
  detail["mode_why"] = IsInRing(job) ? Json(job.ring.why) : Json(nullptr);
  detail["shrunk"] = job.shrunk.from == 0 ? Json(nullptr)
                                          : Json{{"from", job.shrunk.from}, {"former_ranks", FormerRanks(view)}, {"lost", job.shrunk.lost}, {"why", job.shrunk.why}};
  detail["ranks"] = job.ranks;
  detail["spec"] = job.spec;
  detail["progress"] = job.progress;
  detail["members"] = Members(view, counters);
  detail["server"] = ServerOf(view);
  detail["pools"] = Pools(job.plan);
  detail["fan"] = {{"kind", job.fan.empty() ? Json(nullptr) : Json(job.fan)}, {"why", job.fan_why}, {"group", job.plan.group}};
  detail["counters"] = totals["verdicts"];
  detail["totals"] = totals;
  detail["totals"].erase("verdicts");
  detail["lag"] = LagOfRanks(view, counters);
  detail["shape"] = {{"name", job.plan.shape}, {"why", job.plan.why}};
  detail["ports"] = Ports(job.plan);
  detail["trees"] = Trees(job.plan);
  return detail;
}

}  // namespace mlnet::daemon
