// SPDX-License-Identifier: Apache-2.0
#include "plan/trees.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/tree_builder.h"

namespace mlnet::plan {
namespace {

constexpr auto kRoot = TreeBuilder::kRoot;

std::vector<size_t> Without(std::vector<size_t> hosts, size_t host) {
  hosts.erase(std::remove(hosts.begin(), hosts.end(), host), hosts.end());
  return hosts;
}

std::vector<size_t> ThatAggregate(const Site& site, const std::vector<size_t>& hosts) {
  std::vector<size_t> able;
  for (size_t host : FastestFirst(site, hosts)) {
    if (site.CanAggregate(host)) able.push_back(host);
  }
  return able;
}

tl::unexpected<Error> NoSpare(size_t needed) {
  return Err(ErrorCode::kUnavailable,
             fmt::format("needs {} without ranks that can aggregate",
                         needed == 1 ? "a host" : fmt::format("{} hosts", needed)));
}

tl::unexpected<Error> NoRoot() { return Err(ErrorCode::kUnavailable, "no host can aggregate"); }

// Where a sum may end: with push that is a server, so never a host with ranks.
std::vector<size_t> WorkerRoots(const Site& site) {
  return site.job.traffic == Traffic::kPush ? std::vector<size_t>{} : ThatAggregate(site, site.workers);
}

// All worker hosts directly below the root, as far as it has room.
Result<Tree> Star(const Site& site, size_t root, size_t turn) {
  TreeBuilder builder(site, root);
  const auto hosts = FastestFirst(site, Without(site.workers, root));
  if (auto ok = builder.Attach(kRoot, hosts, builder.RoomOf(kRoot), turn); !ok)
    return tl::make_unexpected(ok.error());
  return builder.Take();
}

// One star per root in one plan.
Result<std::vector<Variant>> Shards(const Site& site, std::vector<size_t> roots) {
  roots.resize(std::min(roots.size(), site.settings.trees_max));
  Variant trees;
  for (size_t i = 0; i < roots.size(); ++i) {
    auto tree = Star(site, roots[i], i);
    if (!tree) return tl::make_unexpected(tree.error());
    trees.push_back(std::move(*tree));
  }
  return std::vector<Variant>{std::move(trees)};
}

// Every host that can be one has its turn as the only root.
Result<std::vector<Variant>> Stars(const Site& site) {
  // Ranks that share one host need no other one.
  const auto workers = WorkerRoots(site);
  const bool is_local = site.workers.size() == 1 && !workers.empty();
  const auto& roots = site.spares.empty() || is_local ? workers : site.spares;
  if (roots.empty()) return site.job.traffic == Traffic::kPush ? NoSpare(1) : NoRoot();
  std::vector<Variant> variants;
  for (size_t root : roots) {
    auto tree = Star(site, root, 0);
    if (!tree) return tl::make_unexpected(tree.error());
    variants.push_back({std::move(*tree)});
  }
  return variants;
}

/// Worker hosts that share a way to the core: a rack, or those plugged into the core.
struct Group {
  int rack = -1;
  std::vector<size_t> hosts;    // with ranks, fastest first
  std::vector<size_t> leaders;  // that may head the group in turn
};

std::vector<Group> GroupsOf(const Site& site) {
  std::vector<Group> groups;
  for (int rack = -1; rack < static_cast<int>(site.racks.size()); ++rack) {
    Group group{rack, {}, {}};
    for (size_t host : site.workers) {
      if (site.rack_of[host] == rack) group.hosts.push_back(host);
    }
    if (group.hosts.empty()) continue;
    group.hosts = FastestFirst(site, group.hosts);
    group.leaders = Leaders(site, group.hosts);
    groups.push_back(std::move(group));
  }
  return groups;
}

// What leads a rack for good: its fastest host, one without ranks before one with.
Result<size_t> FixedHead(const Site& site, const Group& group) {
  std::vector<size_t> hosts;
  for (size_t host : site.spares) {
    if (group.rack >= 0 && site.rack_of[host] == group.rack) hosts.push_back(host);
  }
  hosts.insert(hosts.end(), group.hosts.begin(), group.hosts.end());
  const auto able = ThatAggregate(site, hosts);
  if (!able.empty()) return able.front();
  if (group.rack < 0) return NoRoot();
  return Err(ErrorCode::kUnavailable,
             fmt::format("no host of rack {} can aggregate", site.racks[static_cast<size_t>(group.rack)]));
}

/// How a tree of racks is put together.
struct RackTree {
  size_t root = 0;
  std::vector<size_t> heads;  // one per group
  size_t degree = 0;          // below the heads; 0: all directly
  bool heads_by_degree = false;
  size_t turn = 0;
};

// The root's own rack needs no head; each other one sends a single partial sum through the core.
Result<Tree> BuildRackTree(const Site& site, const std::vector<Group>& groups, const RackTree& plan) {
  TreeBuilder builder(site, plan.root);
  std::vector<size_t> heads;
  std::vector<const Group*> led, own;
  for (size_t g = 0; g < groups.size(); ++g) {
    const bool is_own = groups[g].rack == site.rack_of[plan.root] && (groups[g].rack >= 0 || groups.size() == 1);
    if (is_own || plan.heads[g] == plan.root) {
      own.push_back(&groups[g]);
    } else {
      heads.push_back(plan.heads[g]);
      led.push_back(&groups[g]);
    }
  }
  // Where both do not fit, the heads leave half of the root's room to its own rack.
  const size_t room = builder.RoomOf(kRoot);
  const size_t num_own = own.empty() ? 0 : own.front()->hosts.size();
  const size_t heads_room = heads.size() + num_own <= room ? heads.size() : std::max<size_t>(room / 2, 1);
  auto nodes = plan.heads_by_degree ? builder.AttachByDegree(kRoot, heads, plan.degree)
                                    : builder.Attach(kRoot, heads, heads_room, plan.turn);
  if (!nodes) return tl::make_unexpected(nodes.error());
  nodes->push_back(kRoot);
  if (!own.empty()) led.push_back(own.front());
  for (size_t g = 0; g < led.size(); ++g) {
    const size_t head = (*nodes)[g];
    const auto below = Without(led[g]->hosts, g < heads.size() ? heads[g] : plan.root);
    auto ok = plan.degree > 0 ? builder.AttachByDegree(head, below, plan.degree)
                              : builder.Attach(head, below, builder.RoomOf(head), plan.turn);
    if (!ok) return tl::make_unexpected(ok.error());
  }
  return builder.Take();
}

Result<std::vector<size_t>> FixedHeads(const Site& site, const std::vector<Group>& groups) {
  std::vector<size_t> heads;
  for (const Group& group : groups) {
    auto head = FixedHead(site, group);
    if (!head) return tl::make_unexpected(head.error());
    heads.push_back(*head);
  }
  return heads;
}

// One head per rack. Servers and other hosts without ranks share the root's work; else each head may be the root.
Result<std::vector<Variant>> FixedRackTrees(const Site& site, size_t degree) {
  const auto groups = GroupsOf(site);
  auto heads = FixedHeads(site, groups);
  if (!heads) return tl::make_unexpected(heads.error());
  RackTree plan{0, *heads, degree};
  std::vector<Variant> variants;
  if (!site.spares.empty()) {
    Variant trees;
    for (size_t i = 0; i < std::min(site.spares.size(), site.settings.trees_max); ++i) {
      plan.root = site.spares[i];
      auto tree = BuildRackTree(site, groups, plan);
      if (!tree) return tl::make_unexpected(tree.error());
      trees.push_back(std::move(*tree));
    }
    return std::vector<Variant>{std::move(trees)};
  }
  if (site.job.traffic == Traffic::kPush) return NoSpare(1);
  for (size_t head : *heads) {
    plan.root = head;
    plan.heads_by_degree = degree > 0;
    auto tree = BuildRackTree(site, groups, plan);
    if (!tree) return tl::make_unexpected(tree.error());
    variants.push_back({std::move(*tree)});
  }
  return variants;
}

// Root and heads go round, so that every fast host of a rack leads it for its share of the job.
Result<std::vector<Variant>> SpreadRackTrees(const Site& site) {
  auto groups = GroupsOf(site);
  size_t turns = 0, num_leaders = 0;
  for (Group& group : groups) {
    if (group.leaders.empty()) {
      const auto head = FixedHead(site, group);  // a host without ranks can lead where no worker can
      if (!head) return tl::make_unexpected(head.error());
      group.leaders.push_back(*head);
    }
    turns = std::max(turns, group.leaders.size());
    num_leaders += group.leaders.size();
  }
  const bool only_spares = site.job.traffic == Traffic::kPush;
  const size_t num_spares = std::min(site.spares.size(), site.settings.trees_max);
  if (only_spares && num_spares == 0) return NoSpare(1);
  const size_t num_own = only_spares ? 0 : std::min(num_leaders, site.settings.trees_max - num_spares);
  Variant trees;
  for (size_t i = 0; i < num_own + num_spares; ++i) {
    RackTree plan;
    plan.turn = i % turns;
    for (const Group& group : groups) plan.heads.push_back(group.leaders[plan.turn % group.leaders.size()]);
    plan.root = i < num_own ? plan.heads[i * groups.size() / num_own] : site.spares[i - num_own];
    auto tree = BuildRackTree(site, groups, plan);
    if (!tree) return tl::make_unexpected(tree.error());
    trees.push_back(std::move(*tree));
  }
  return std::vector<Variant>{std::move(trees)};
}

}  // namespace

Result<std::vector<Variant>> VariantsOf(const Site& site, Shape shape) {
  const bool has_racks = GroupsOf(site).size() > 1;
  switch (shape) {
    case Shape::kStar:
      return Stars(site);
    case Shape::kShards:
      if (site.spares.size() < 2) return NoSpare(2);
      return Shards(site, FastestFirst(site, site.spares));
    case Shape::kWorkers: {
      const auto roots = WorkerRoots(site);
      if (roots.size() < 2) return Err(ErrorCode::kUnavailable, "needs 2 worker hosts that can aggregate");
      return Shards(site, roots);
    }
    case Shape::kRack:
    case Shape::kRackShards:
      if (!has_racks) return Err(ErrorCode::kUnavailable, "all worker hosts are in one rack");
      return shape == Shape::kRack ? FixedRackTrees(site, 0) : SpreadRackTrees(site);
    case Shape::kBinary:
    case Shape::kDegree:
      return FixedRackTrees(site, shape == Shape::kBinary ? 2 : site.settings.degree);
  }
  return NoRoot();
}

}  // namespace mlnet::plan
