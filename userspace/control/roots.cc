// SPDX-License-Identifier: Apache-2.0
#include "control/roots.h"

#include <algorithm>
#include <bit>

#include "base/ip_address.h"

namespace mlnet::control {
namespace {

size_t JobsSummedOn(const std::vector<JobView>& jobs, const std::string& host) {
  return static_cast<size_t>(std::count_if(jobs.begin(), jobs.end(), [&](const JobView& v) {
    return (v.job.state == kPreparing || v.job.state == kReady) && IsRootOfAny(v.job.plan, host);
  }));
}

std::string WhyNotRunning(const PlanInput& in, const HostRecord& host) {
  return !host.running || in.now_ms > host.heartbeat_ms + kHeartbeatStaleMs ? "its mlnetd is not running" : "";
}

std::string WhyTooFull(const PlanInput& in, const HostRecord& host) {
  const uint32_t needed = SlotsPerTree(in.job->job.spec);
  if (host.slots_free >= needed) return "";
  return "it has " + std::to_string(host.slots_free) + " slots in a row, the job needs " + std::to_string(needed);
}

const MemberRecord* RankOn(const PlanInput& in, const std::string& host) {
  const auto& members = in.job->members;
  const auto it = std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.host == host; });
  return it == members.end() ? nullptr : &*it;
}

// Why `host` cannot sum this job as a host without ranks of it; empty when it can, with `out` set.
std::string ConsiderSpare(const PlanInput& in, const HostRecord& host, Candidate& out) {
  const auto offers = [](const IfaceRecord& i) { return i.aggregator; };
  if (std::none_of(host.ifaces.begin(), host.ifaces.end(), offers)) return "no interface with aggregator = true";
  if (const std::string why = WhyNotRunning(in, host); !why.empty()) return why;
  const auto usable = std::find_if(host.ifaces.begin(), host.ifaces.end(), [&](const IfaceRecord& i) {
    return i.aggregator && i.attached && !i.address.empty();
  });
  if (usable == host.ifaces.end()) return "its aggregator interface is not attached or has no address of the job's family";
  const auto& lost_hosts = in.job->job.shrunk.lost_hosts;
  if (std::find(lost_hosts.begin(), lost_hosts.end(), host.host) != lost_hosts.end()) return "the job has lost the ranks that it ran";
  if (const MemberRecord* rank = RankOn(in, host.host)) return "it runs rank " + std::to_string(rank->rank) + " of this job";
  if (const std::string why = WhyTooFull(in, host); !why.empty()) return why;
  out = {&host, &*usable, JobsSummedOn(*in.jobs, host.host)};
  return "";
}

// The same for a host of ranks: these reach it by its local link, all others by the interface of the ranks.
std::string ConsiderWorker(const PlanInput& in, const HostRecord& host, Candidate& out) {
  if (RankOn(in, host.host) == nullptr) return "it runs no rank of this job";
  if (const std::string why = WhyNotRunning(in, host); !why.empty()) return why;
  if (host.local_address.empty()) return "its own ranks cannot reach it: it has no local link";
  const auto usable =
      std::find_if(host.ifaces.begin(), host.ifaces.end(), [](const auto& i) { return i.attached && !i.address.empty(); });
  if (usable == host.ifaces.end()) return "it has no attached interface";
  if (const std::string why = WhyTooFull(in, host); !why.empty()) return why;
  out = {&host, &*usable, 0};
  return "";
}

template <typename Consider>
std::vector<Candidate> All(const PlanInput& in, Consider consider, std::string& reasons) {
  std::vector<Candidate> candidates;
  for (const HostRecord& host : *in.hosts) {
    Candidate candidate{};
    const std::string why_not = consider(in, host, candidate);
    if (why_not.empty()) candidates.push_back(candidate);
    else reasons += (reasons.empty() ? "" : "; ") + host.host + ": " + why_not;
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(a.load, a.host->host) < std::pair(b.load, b.host->host);
  });
  return candidates;
}

}  // namespace

const HostRecord* FindHost(const std::vector<HostRecord>& hosts, const std::string& name) {
  const auto it = std::find_if(hosts.begin(), hosts.end(), [&](const auto& h) { return h.host == name; });
  return it == hosts.end() ? nullptr : &*it;
}

bool SameNetwork(const IfaceRecord& iface, const std::string& address) {
  const auto own = IpAddress::Parse(iface.address), other = IpAddress::Parse(address);
  return own && other && iface.prefix > 0 && own->IsInNetwork(*other, iface.prefix);
}

const IfaceRecord* IfaceTowards(const HostRecord& host, const std::string& address) {
  const IfaceRecord* first = nullptr;
  for (const IfaceRecord& iface : host.ifaces) {
    if (!iface.attached || iface.address.empty()) continue;
    if (SameNetwork(iface, address)) return &iface;
    if (first == nullptr) first = &iface;
  }
  return first;
}

uint32_t SlotsPerTree(const JobSpec& spec) {
  return SlotsOf(static_cast<uint32_t>(std::countr_zero(spec.slots)), spec.classes);
}

Candidates FindCandidates(const PlanInput& in) {
  Candidates found;
  found.spares = All(in, ConsiderSpare, found.why_no_spare);
  found.workers = All(in, ConsiderWorker, found.why_no_worker);
  return found;
}

}  // namespace mlnet::control
