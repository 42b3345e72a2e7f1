// SPDX-License-Identifier: Apache-2.0
// Planning a job: candidates -> what the planner is told -> its trees -> the plan that all hosts read.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <span>

#include "control/plan.h"
#include "control/rails.h"
#include "control/roots.h"
#include "control/tree.h"
#include "mlnet/job.h"
#include "plan/planner.h"

namespace mlnet::control {
namespace {

constexpr uint64_t kPlannedBytes = uint64_t{64} << 20;  // a big bucket of gradients: what bandwidth is for
constexpr double kNominalRate = 10e9;  // racks are known but no rate is: all the same
constexpr uint32_t kTreeWeightMax = 1000;

struct Draft {
  const PlanInput& in;
  Candidates found;
  std::vector<const HostRecord*> hosts;   // by the planner's host index
  std::vector<Rail> rails;
  std::optional<plan::Shape> wanted;      // none: the planner's choice
};

// Shapes that were asked for by name: a host of ranks instead would be a surprise.
bool NeedsSpare(const std::string& shape) { return shape == "star" || shape == "shards"; }

tl::unexpected<Error> NoAggregator(const Draft& draft) {
  const std::string& shape = draft.in.job->job.spec.shape;
  std::string reasons = shape == "workers" ? "" : draft.found.why_no_spare;
  if (!NeedsSpare(shape) && !draft.found.why_no_worker.empty()) reasons += (reasons.empty() ? "" : "; ") + draft.found.why_no_worker;
  return Err(ErrorCode::kUnavailable,
             "no aggregator for job '" + draft.in.job->job.name + "': " + (reasons.empty() ? "no host is known" : reasons),
             "run mlnetd on a host without ranks of this job and attach its NIC there: "
             "mlnetctl iface attach NAME --aggregator");
}

bool Has(const std::vector<Candidate>& candidates, const HostRecord* host) {
  return std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& c) { return c.host == host; });
}

// The hosts of the job's trees, each with the NICs that it uses: the ranks' by rank, then those that may only sum.
Result<void> ChooseHosts(Draft& draft) {
  if (draft.in.job->job.spec.shape == "workers") draft.found.spares.clear();
  std::string towards;  // empty: to whom the first one has
  if (!draft.found.spares.empty()) towards = draft.found.spares.front().iface->address;
  else if (!draft.found.workers.empty()) towards = draft.found.workers.front().iface->address;
  std::vector<const IfaceRecord*> ifaces;
  for (const MemberRecord& member : draft.in.job->members) {
    const HostRecord* host = FindHost(*draft.in.hosts, member.host);
    if (host != nullptr && std::find(draft.hosts.begin(), draft.hosts.end(), host) != draft.hosts.end()) continue;
    const IfaceRecord* iface = host == nullptr ? nullptr : IfaceTowards(*host, towards);
    if (iface == nullptr) {
      return Err(ErrorCode::kUnavailable,
                 "host " + member.host + " (rank " + std::to_string(member.rank) + ") has no attached interface",
                 "mlnetctl iface attach NAME on that host");
    }
    draft.hosts.push_back(host);
    ifaces.push_back(iface);
    if (towards.empty()) towards = iface->address;
  }
  const size_t first_spare = draft.hosts.size();
  for (const Candidate& spare : draft.found.spares) {
    draft.hosts.push_back(spare.host);
    ifaces.push_back(spare.iface);
  }
  draft.rails = FindRails(draft.hosts, ifaces, first_spare);
  return {};
}

// Of a host's NICs in these rails. Equal rates where only racks are known; none where some are missing: half a truth
// would mislead.
double RateOf(const Draft& draft, std::span<const Rail> rails, size_t host) {
  const bool all = std::all_of(draft.rails.begin(), draft.rails.end(), [](const Rail& rail) { return rail.rate_bps > 0; });
  double rate = 0;
  for (const Rail& rail : rails) rate += static_cast<double>(rail.ifaces[host]->rate_bps);
  if (all) return rate;
  const bool racks = std::any_of(draft.hosts.begin(), draft.hosts.end(), [&](const auto* h) { return h->rack != draft.hosts[0]->rack; });
  return racks ? kNominalRate : 0;
}

plan::Cluster ClusterOf(const Draft& draft, std::span<const Rail> rails) {
  plan::Cluster cluster;
  for (size_t h = 0; h < draft.hosts.size(); ++h) {
    const HostRecord& host = *draft.hosts[h];
    const double rate = RateOf(draft, rails, h);
    const bool can_sum = Has(draft.found.workers, &host) || Has(draft.found.spares, &host);
    cluster.hosts.push_back({host.host, host.rack, rate, rate, can_sum});
    cluster.oversubscription = std::max(cluster.oversubscription, host.oversubscription);
  }
  return cluster;
}

plan::Job JobOf(const Draft& draft) {
  plan::Job job;
  for (const MemberRecord& member : draft.in.job->members) job.host_of_rank.push_back(member.host);
  job.bytes = kPlannedBytes;
  job.multicast = draft.in.job->job.spec.multicast != "off";
  return job;
}

Result<void> ChooseShape(Draft& draft) {
  const std::string& shape = draft.in.job->job.spec.shape;
  const size_t num_spares = draft.found.spares.size(), num_workers = draft.found.workers.size();
  if (num_spares == 0 && (num_workers == 0 || NeedsSpare(shape))) return NoAggregator(draft);
  if (shape == "workers" && num_workers == 0) return NoAggregator(draft);
  if (shape == "workers") {
    draft.wanted = num_workers > 1 ? plan::Shape::kWorkers : plan::Shape::kStar;
  } else if (shape == "shards") {
    draft.wanted = num_spares > 1 ? plan::Shape::kShards : plan::Shape::kStar;
  } else if (shape != "auto") {
    draft.wanted = plan::ShapeFromName(shape);
  }
  return {};
}

void ChooseByRule(Draft& draft) {
  const size_t num_spares = draft.found.spares.size();
  if (num_spares > 1) draft.wanted = plan::Shape::kShards;
  else if (num_spares == 1 || draft.found.workers.size() < 2) draft.wanted = plan::Shape::kStar;
  else draft.wanted = plan::Shape::kWorkers;
}

PlanTree TreeOf(const plan::Tree& from) {
  PlanTree tree;
  for (const plan::Node& node : from.nodes) tree.nodes.push_back({node.host, node.parent});
  return tree;
}

// Only the ports that a tree uses: the others' hosts have no part in the job.
void UsePorts(const Draft& draft, const Rail& rail, PlanTree& tree, Plan& plan) {
  for (PlanNode& node : tree.nodes) {
    const HostRecord& host = *draft.hosts[node.port];
    const IfaceRecord& iface = *rail.ifaces[node.port];
    const auto at = std::find_if(plan.ports.begin(), plan.ports.end(),
                                 [&](const PlanPort& port) { return port.host == host.host && port.iface == iface.name; });
    node.port = static_cast<size_t>(at - plan.ports.begin());
    if (at != plan.ports.end()) continue;
    // Without slots its ranks send to the node above, each on its own.
    const bool has_slots = host.slots_free >= SlotsPerTree(draft.in.job->job.spec);
    plan.ports.push_back({host.host, iface.name, iface.address, has_slots ? host.local_address : ""});
  }
}

Plan EmptyPlan(const Draft& draft) {
  Plan plan;
  plan.port = draft.hosts.front()->port;
  plan.blocks = MLNET_BLOCKS_MAX;
  plan.log2_slots = static_cast<uint32_t>(std::countr_zero(draft.in.job->job.spec.slots));
  plan.classes = draft.in.job->job.spec.classes;
  for (const MemberRecord& member : draft.in.job->members) plan.host_of_rank.push_back(member.host);
  return plan;
}

// The trees of the first `num_rails`: each rail planned by its own rates, all in the shape of the first.
Result<Plan> PlanOn(const Draft& draft, const plan::Settings& settings, size_t num_rails) {
  Plan plan = EmptyPlan(draft);
  auto shape = draft.wanted;
  const auto shares = SharesOf(draft.rails);
  std::vector<double> weights;
  for (size_t r = 0; r < num_rails; ++r) {
    const Rail& rail = draft.rails[r];
    const auto planned = plan::MakePlan(ClusterOf(draft, {&rail, 1}), JobOf(draft), settings, shape);
    if (!planned) return tl::make_unexpected(planned.error());
    shape = planned->choice().shape;
    if (r == 0) plan.why = planned->reason;
    double total = 0;
    for (const plan::Tree& tree : planned->choice().trees) total += tree.weight;
    for (const plan::Tree& tree : planned->choice().trees) {
      weights.push_back(tree.weight / total * shares[r]);
      plan.trees.push_back(TreeOf(tree));
      UsePorts(draft, rail, plan.trees.back(), plan);
    }
  }
  plan.shape = plan::NameOf(*shape);
  if (num_rails > 1) plan.why += fmt::format(", on each of {} NICs per host", num_rails);
  const double heaviest = *std::max_element(weights.begin(), weights.end());
  for (size_t t = 0; t < weights.size(); ++t) {
    plan.trees[t].weight = std::max<uint32_t>(1, static_cast<uint32_t>(std::lround(weights[t] / heaviest * kTreeWeightMax)));
  }
  return plan;
}

Result<void> CheckHosts(const Draft& draft, Plan& plan) {
  for (const PlanPort& port : plan.ports) {
    const HostRecord& host = **std::find_if(draft.hosts.begin(), draft.hosts.end(), [&](const auto* h) { return h->host == port.host; });
    const IfaceRecord& iface =
        *std::find_if(host.ifaces.begin(), host.ifaces.end(), [&](const IfaceRecord& i) { return i.name == port.iface; });
    if (host.port != plan.port) {
      return Err(ErrorCode::kMismatch, fmt::format("host {} uses data port {}, host {} uses {}", host.host, host.port,
                                                   draft.hosts.front()->host, plan.port),
                 "set the same datapath.port on all hosts");
    }
    const uint32_t blocks = BlocksPerPacket(iface.mtu, IsIpv6(plan), draft.in.job->job.spec.mac);
    if (blocks == 0) {
      return Err(ErrorCode::kUnsupported, fmt::format("MTU {} of {} on host {} is too small for a packet with one block", iface.mtu,
                                                      iface.name, host.host),
                 "raise it to 1500: ip link set " + iface.name + " mtu 1500");
    }
    plan.blocks = std::min(plan.blocks, blocks);
  }
  return {};
}

bool HasRates(const Draft& draft) { return RateOf(draft, draft.rails, 0) > 0; }

// The host of the job's server, which is no rank: it contributes nothing to the tree. Empty: the job has none.
std::string TakeServer(JobView& view) {
  std::string host;
  for (const MemberRecord& member : view.members) {
    if (member.rank == kServerRank) host = member.host;
  }
  std::erase_if(view.members, [](const MemberRecord& member) { return member.rank == kServerRank; });
  return host;
}

// One tree, and its root is where the server runs.
Result<void> ChooseServersHost(Draft& draft, const std::string& host) {
  const auto is_other = [&](const Candidate& c) { return c.host->host != host || c.host->local_address.empty(); };
  std::erase_if(draft.found.spares, is_other);
  std::erase_if(draft.found.workers, is_other);
  draft.wanted = plan::Shape::kStar;
  if (!draft.found.spares.empty() || !draft.found.workers.empty()) return {};
  return Err(ErrorCode::kUnavailable,
             "host " + host + " has the server of job '" + draft.in.job->job.name + "', but cannot sum it: " +
                 draft.found.why_no_spare + "; " + draft.found.why_no_worker,
             "attach its NIC there: mlnetctl iface attach NAME --aggregator");
}

Result<Draft> MakeDraft(const PlanInput& in, const std::string& server_host = "") {
  Draft draft{in, FindCandidates(in), {}, {}, {}};
  if (!server_host.empty()) {
    if (auto ok = ChooseServersHost(draft, server_host); !ok) return tl::make_unexpected(ok.error());
  } else if (auto ok = ChooseShape(draft); !ok) return tl::make_unexpected(ok.error());
  if (auto ok = ChooseHosts(draft); !ok) return tl::make_unexpected(ok.error());
  if (!server_host.empty()) draft.rails.resize(1);  // a server answers in one tree
  if (!draft.wanted && !HasRates(draft)) ChooseByRule(draft);
  return draft;
}

// A host that sums in more trees than it has slots for; null: there is none.
const HostRecord* FullHost(const Draft& draft, const Plan& plan) {
  const uint32_t needed = SlotsPerTree(draft.in.job->job.spec);
  for (const HostRecord* host : draft.hosts) {
    uint32_t trees = 0;
    for (size_t t = 0; t < plan.trees.size(); ++t) {
      const auto node = FindNode(plan, t, host->host);
      trees += node && IsSumming(plan, t, *node) ? 1 : 0;
    }
    if (trees * needed > host->slots_free) return host;
  }
  return nullptr;
}

// With fewer trees where some host has no slots for all, at last with fewer rails.
Result<Plan> PlanWithin(const Draft& draft) {
  plan::Settings settings;
  for (size_t trees_max = MLNET_TREES_MAX;;) {
    const size_t num_rails = std::min(draft.rails.size(), trees_max);
    settings.trees_max = trees_max / num_rails;
    auto plan = PlanOn(draft, settings, num_rails);
    if (!plan) return plan;
    const HostRecord* full = FullHost(draft, *plan);
    if (full == nullptr) return plan;
    if (plan->trees.size() == 1) {
      return Err(ErrorCode::kUnavailable,
                 fmt::format("host {} has {} slots in a row, the job needs {}", full->host, full->slots_free,
                             SlotsPerTree(draft.in.job->job.spec)),
                 "end other jobs, or create this one with fewer slots");
    }
    trees_max = plan->trees.size() - 1;
  }
}

}  // namespace

Result<Plan> MakePlan(const PlanInput& input) {
  const auto hosts = HostsOfFamily(input.addressing, *input.job, *input.hosts);
  if (!hosts) return tl::make_unexpected(hosts.error());
  JobView ranks = *input.job;
  const std::string server_host = TakeServer(ranks);
  PlanInput in = input;
  in.job = &ranks;
  in.hosts = &*hosts;
  const auto draft = MakeDraft(in, server_host);
  if (!draft) return tl::make_unexpected(draft.error());
  auto plan = PlanWithin(*draft);
  if (!plan) return plan;
  plan->server_host = server_host;
  if (!server_host.empty()) plan->why = "the server runs on " + server_host;
  else if (!HasRates(*draft)) plan->why = "the rates of the links are not known; " + plan->why;
  if (auto ok = CheckHosts(*draft, *plan); !ok) return tl::make_unexpected(ok.error());
  return plan;
}

bool CouldBeSummed(const PlanInput& input) {
  auto hosts = HostsOfFamily(input.addressing, *input.job, *input.hosts);
  if (!hosts) return false;
  for (HostRecord& host : *hosts) host.slots_free = UINT32_MAX;
  PlanInput in = input;
  in.hosts = &*hosts;
  return MakeDraft(in).has_value();
}

Result<Plan> MakeRingPlan(const PlanInput& input) {
  const auto hosts = HostsOfFamily(input.addressing, *input.job, *input.hosts);
  if (!hosts) return tl::make_unexpected(hosts.error());
  PlanInput in = input;
  in.hosts = &*hosts;
  Draft draft{in, {}, {}, {}, {}};
  if (auto ok = ChooseHosts(draft); !ok) return tl::make_unexpected(ok.error());
  Plan plan = EmptyPlan(draft);
  plan.shape = "ring";
  PlanTree tree{1, {{draft.hosts.size(), -1}}};
  for (size_t h = 0; h < draft.hosts.size(); ++h) {
    const IfaceRecord& iface = *draft.rails.front().ifaces[h];
    plan.ports.push_back({draft.hosts[h]->host, iface.name, iface.address, ""});
    tree.nodes.push_back({h, 0});
  }
  if (auto ok = CheckHosts(draft, plan); !ok) return tl::make_unexpected(ok.error());
  plan.ports.push_back({"", "", plan.ports.front().address, ""});
  plan.trees.push_back(std::move(tree));
  return plan;
}

Result<PlannerTask> TaskOfPlanner(const PlanInput& input) {
  const auto hosts = HostsOfFamily(input.addressing, *input.job, *input.hosts);
  if (!hosts) return tl::make_unexpected(hosts.error());
  PlanInput in = input;
  in.hosts = &*hosts;
  const auto draft = MakeDraft(in);
  if (!draft) return tl::make_unexpected(draft.error());
  int mtu = draft->rails.front().ifaces.front()->mtu;
  for (const Rail& rail : draft->rails) {
    for (const IfaceRecord* iface : rail.ifaces) mtu = std::min(mtu, iface->mtu);
  }
  PlannerTask task{ClusterOf(*draft, draft->rails), JobOf(*draft), mtu, HasRates(*draft), draft->wanted};
  for (plan::Host& host : task.cluster.hosts) {
    if (!task.has_rates) host.up_bps = host.down_bps = kNominalRate;
  }
  return task;
}

}  // namespace mlnet::control
