// SPDX-License-Identifier: Apache-2.0
#include "control/plan.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>

#include "mlnet/job.h"

namespace mlnet::control {
namespace {

constexpr uint32_t kFixupLog2Slots = 7;  // with 32, plain sums of the demo took 9 % longer

uint32_t HostOrder(const std::string& address) {
  in_addr parsed{};
  return inet_pton(AF_INET, address.c_str(), &parsed) == 1 ? ntohl(parsed.s_addr) : 0;
}

bool SameNetwork(const IfaceRecord& iface, const std::string& address) {
  if (iface.prefix <= 0 || iface.prefix > 32) return false;
  const uint32_t mask = ~uint32_t{0} << (32 - iface.prefix);
  return (HostOrder(iface.address) & mask) == (HostOrder(address) & mask);
}

const HostRecord* FindHost(const std::vector<HostRecord>& hosts, const std::string& name) {
  const auto it = std::find_if(hosts.begin(), hosts.end(), [&](const auto& h) { return h.host == name; });
  return it == hosts.end() ? nullptr : &*it;
}

// The attached interface that shares a network with `address`; else, behind a router, the first one.
const IfaceRecord* IfaceTowards(const HostRecord& host, const std::string& address) {
  const IfaceRecord* first = nullptr;
  for (const IfaceRecord& iface : host.ifaces) {
    if (!iface.attached || iface.address.empty()) continue;
    if (SameNetwork(iface, address)) return &iface;
    if (first == nullptr) first = &iface;
  }
  return first;
}

struct Candidate {
  const HostRecord* host;
  const IfaceRecord* iface;
  size_t load;
};

size_t JobsSummedOn(const std::vector<JobView>& jobs, const std::string& host) {
  return static_cast<size_t>(std::count_if(jobs.begin(), jobs.end(), [&](const JobView& v) {
    return (v.job.state == kPreparing || v.job.state == kReady) && Sums(v.job.plan, host);
  }));
}

std::string WhyNotRunning(const PlanInput& in, const HostRecord& host) {
  return !host.running || in.now_ms > host.heartbeat_ms + kHeartbeatStaleMs ? "its mlnetd is not running" : "";
}

std::string WhyTooFull(const PlanInput& in, const HostRecord& host) {
  const JobSpec& spec = in.job->job.spec;
  const uint32_t needed = SlotsOf(static_cast<uint32_t>(std::countr_zero(spec.slots)), spec.classes);
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
  if (usable == host.ifaces.end()) return "its aggregator interface is not attached or has no IPv4 address";
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
std::vector<Candidate> Candidates(const PlanInput& in, Consider consider, std::string& reasons) {
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
  if (candidates.size() > MLNET_TREES_MAX) candidates.resize(MLNET_TREES_MAX);
  return candidates;
}

Result<std::vector<Candidate>> ChooseRoots(const PlanInput& in) {
  const std::string& shape = in.job->job.spec.shape;
  std::string reasons;
  std::vector<Candidate> roots;
  if (shape != "workers") roots = Candidates(in, ConsiderSpare, reasons);
  if (shape == "star" && !roots.empty()) roots.resize(1);
  if (shape == "workers" || (shape == "auto" && roots.empty())) roots = Candidates(in, ConsiderWorker, reasons);
  if (!roots.empty()) return roots;
  return Err(ErrorCode::kUnavailable,
             "no aggregator for job '" + in.job->job.name + "': " + (reasons.empty() ? "no host is known" : reasons),
             "run mlnetd on a host without ranks of this job and attach its NIC there: "
             "mlnetctl iface attach NAME --aggregator");
}

Result<void> CheckPacketSize(const HostRecord& host, const IfaceRecord& iface, Plan& plan) {
  const uint32_t blocks = BlocksPerPacket(iface.mtu);
  if (blocks == 0) {
    return Err(ErrorCode::kUnsupported,
               "MTU " + std::to_string(iface.mtu) + " of " + iface.name + " on host " + host.host +
                   " is too small for a packet with one block",
               "raise it to 1500: ip link set " + iface.name + " mtu 1500");
  }
  plan.blocks = std::min(plan.blocks, blocks);
  return {};
}

Result<PlanChild> PlaceMember(const PlanInput& in, const MemberRecord& member, Plan& plan) {
  const HostRecord* host = FindHost(*in.hosts, member.host);
  const IfaceRecord* iface = host == nullptr ? nullptr : IfaceTowards(*host, plan.trees.front().address);
  if (iface == nullptr) {
    return Err(ErrorCode::kUnavailable,
               "host " + member.host + " (rank " + std::to_string(member.rank) + ") has no attached interface",
               "mlnetctl iface attach NAME on that host");
  }
  if (host->port != plan.port) {
    return Err(ErrorCode::kMismatch,
               "host " + host->host + " uses data port " + std::to_string(host->port) + ", aggregator " +
                   plan.trees.front().aggregator +
                   " uses " + std::to_string(plan.port),
               "set the same datapath.port on all hosts");
  }
  if (auto ok = CheckPacketSize(*host, *iface, plan); !ok) return tl::make_unexpected(ok.error());
  return PlanChild{member.rank, member.host, iface->name, iface->address, host->local_address};
}

}  // namespace

uint32_t BlocksPerPacket(int mtu) {
  // IPv4 and UDP headers, then header and trailer of the packet.
  constexpr int kOverhead = 20 + 8 + static_cast<int>(sizeof(mlnet_hdr) + sizeof(mlnet_trailer));
  return static_cast<uint32_t>(std::clamp((mtu - kOverhead) / MLNET_BLOCK_BYTES, 0, MLNET_BLOCKS_MAX));
}

Result<Plan> MakePlan(const PlanInput& in) {
  const auto roots = ChooseRoots(in);
  if (!roots) return tl::make_unexpected(roots.error());
  Plan plan;
  plan.port = roots->front().host->port;
  plan.blocks = MLNET_BLOCKS_MAX;
  plan.log2_slots = static_cast<uint32_t>(std::countr_zero(in.job->job.spec.slots));
  plan.classes = in.job->job.spec.classes;
  for (const Candidate& root : *roots) {
    if (auto ok = CheckPacketSize(*root.host, *root.iface, plan); !ok) return tl::make_unexpected(ok.error());
    const bool has_ranks = RankOn(in, root.host->host) != nullptr;
    plan.trees.push_back({root.host->host, root.iface->name, root.iface->address,
                          has_ranks ? root.host->local_address : std::string(), 1});
  }
  for (const MemberRecord& member : in.job->members) {
    auto child = PlaceMember(in, member, plan);
    if (!child) return tl::make_unexpected(child.error());
    plan.children.push_back(std::move(*child));
  }
  return plan;
}

void Number(Plan& plan, const Numbering& numbering, uint32_t group_base, int group_bits) {
  plan.job_id = numbering.job_id;
  plan.epoch = numbering.epoch;
  const uint32_t mask = (uint32_t{1} << (32 - group_bits)) - 1;
  in_addr group{htonl((group_base & ~mask) | (numbering.job_id & mask))};
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &group, text, sizeof(text));
  plan.group = text;
}

PoolSize PoolOf(const Plan& plan, uint32_t index) {
  const uint32_t stream = index / plan.classes;
  return {MLNET_CLASS_STREAM(index % plan.classes, stream),
          stream == 0 ? plan.log2_slots : std::min(plan.log2_slots, kFixupLog2Slots)};
}

uint32_t SlotsOf(uint32_t log2_slots, uint32_t classes) {
  return classes * ((uint32_t{1} << log2_slots) + (uint32_t{1} << std::min(log2_slots, kFixupLog2Slots)));
}

std::vector<std::string> WorkerHosts(const Plan& plan) {
  std::vector<std::string> hosts;
  for (const PlanChild& child : plan.children) {
    if (std::find(hosts.begin(), hosts.end(), child.host) == hosts.end()) hosts.push_back(child.host);
  }
  return hosts;
}

bool IsInner(const Plan& plan, size_t tree, const std::string& host) {
  if (plan.trees[tree].aggregator == host) return false;
  const auto is_here = [&](const PlanChild& c) { return c.host == host && !c.local_address.empty(); };
  return std::count_if(plan.children.begin(), plan.children.end(), is_here) > 1;
}

std::vector<TreeChild> RootChildren(const Plan& plan, size_t tree) {
  std::vector<TreeChild> children;
  for (const PlanChild& rank : plan.children) {
    const auto of_host = std::find_if(children.begin(), children.end(), [&](const auto& c) { return c.host == rank.host; });
    if (of_host != children.end() && IsInner(plan, tree, rank.host)) of_host->ranks.push_back(rank.rank);
    else children.push_back({{rank.rank}, rank.host, rank.address});
  }
  return children;
}

uint8_t ChildIndexOf(const Plan& plan, size_t tree, int rank) {
  const std::string& host = plan.children[static_cast<size_t>(rank)].host;
  if (IsInner(plan, tree, host)) {
    return static_cast<uint8_t>(std::count_if(plan.children.begin(), plan.children.begin() + rank,
                                              [&](const PlanChild& c) { return c.host == host; }));
  }
  const auto children = RootChildren(plan, tree);
  const auto own = std::find_if(children.begin(), children.end(), [&](const TreeChild& c) {
    return std::find(c.ranks.begin(), c.ranks.end(), rank) != c.ranks.end();
  });
  return static_cast<uint8_t>(own - children.begin());
}

bool Sums(const Plan& plan, const std::string& host) {
  return std::any_of(plan.trees.begin(), plan.trees.end(), [&](const PlanTree& t) { return t.aggregator == host; });
}

bool Involves(const Plan& plan, const std::string& host) {
  return Sums(plan, host) ||
         std::any_of(plan.children.begin(), plan.children.end(), [&](const PlanChild& c) { return c.host == host; });
}

std::vector<std::string> HostsOf(const Plan& plan) {
  std::vector<std::string> hosts = WorkerHosts(plan);
  for (const PlanTree& tree : plan.trees) {
    if (std::find(hosts.begin(), hosts.end(), tree.aggregator) == hosts.end()) hosts.push_back(tree.aggregator);
  }
  return hosts;
}

std::string NamesOfAggregators(const Plan& plan) {
  std::string names;
  for (const PlanTree& tree : plan.trees) names += (names.empty() ? "" : ", ") + tree.aggregator;
  return names;
}

}  // namespace mlnet::control
