// SPDX-License-Identifier: Apache-2.0
// What must hold for any cluster and job. Link bytes are counted again here by another method: every packet's way as a
// list of names, and a multicast as the union of the ways to its receivers.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "unit/plan/clusters.h"

namespace mlnet::plan {
namespace {

struct World {
  Cluster cluster;
  Job job;
  Settings settings = Ideal();
};

World AnyWorld() {
  World w;
  const int racks = *rc::gen::inRange(0, 5), hosts = *rc::gen::inRange(1, 15);
  w.cluster.oversubscription = *rc::gen::element(0.0, 1.0, 4.0);
  for (int h = 0; h < hosts; ++h) {
    const int rack = racks == 0 ? 0 : *rc::gen::inRange(0, racks + 1);
    Host host = MakeHost("h" + std::to_string(h), 0, rack == 0 ? "" : "r" + std::to_string(rack));
    host.up_bps = *rc::gen::element(0.0, 1e8, 5e8, 1e9, 1e10);
    host.down_bps = *rc::gen::element(1e8, 5e8, 1e9, 1e10);
    host.can_aggregate = *rc::gen::inRange(0, 5) > 0;
    w.cluster.hosts.push_back(host);
    const int ranks = *rc::gen::element(0, 1, 1, 1, 2, 3);
    w.job.host_of_rank.insert(w.job.host_of_rank.end(), static_cast<size_t>(ranks), host.name);
  }
  RC_PRE(!w.job.host_of_rank.empty());
  w.job.bytes = *rc::gen::element<uint64_t>(4, 4096, 1 << 20);
  w.job.multicast = *rc::gen::arbitrary<bool>();
  w.settings.children_max = *rc::gen::element<size_t>(4, 6, 64);
  w.settings.trees_max = *rc::gen::element<size_t>(2, 64);
  return w;
}

size_t RanksOn(const World& w, size_t host) {
  return static_cast<size_t>(
      std::count(w.job.host_of_rank.begin(), w.job.host_of_rank.end(), w.cluster.hosts[host].name));
}

std::set<std::string> Way(const World& w, size_t from, size_t to) {
  const Host &a = w.cluster.hosts[from], &b = w.cluster.hosts[to];
  std::set<std::string> way = {a.name + " up", b.name + " down"};
  if (a.rack != b.rack && !a.rack.empty()) way.insert("rack " + a.rack + " up");
  if (a.rack != b.rack && !b.rack.empty()) way.insert("rack " + b.rack + " down");
  return way;
}

std::map<std::string, double> Recounted(const World& w, const std::vector<Tree>& trees) {
  std::map<std::string, double> bytes;
  const auto send = [&](const std::set<std::string>& way, double weight) {
    for (const auto& link : way) bytes[link] += weight * static_cast<double>(w.job.bytes);
  };
  for (const Tree& tree : trees) {
    for (size_t n = 0; n < tree.nodes.size(); ++n) {
      std::set<std::string> all_ways;
      for (size_t m = 0; m < tree.nodes.size(); ++m) {  // by parents, not by children
        if (tree.nodes[m].parent != static_cast<int>(n)) continue;
        send(Way(w, tree.nodes[m].host, tree.nodes[n].host), tree.weight);
        const auto back = Way(w, tree.nodes[n].host, tree.nodes[m].host);
        if (!w.job.multicast) send(back, tree.weight);
        all_ways.insert(back.begin(), back.end());
      }
      if (w.job.multicast) send(all_ways, tree.weight);
    }
  }
  return bytes;
}

void CheckTree(const World& w, const Tree& tree) {
  std::map<size_t, int> seen;
  for (size_t n = 0; n < tree.nodes.size(); ++n) {
    const Node& node = tree.nodes[n];
    ++seen[node.host];
    RC_ASSERT((node.parent < 0) == (n == 0));
    // Towards the root without going round in a circle.
    size_t steps = 0;
    for (int up = node.parent; up >= 0; up = tree.nodes[static_cast<size_t>(up)].parent)
      RC_ASSERT(++steps < tree.nodes.size());
    for (size_t child : node.children) RC_ASSERT(tree.nodes[child].parent == static_cast<int>(n));
    RC_ASSERT(node.children.size() + RanksOn(w, node.host) <= w.settings.children_max);
    if (!node.children.empty()) RC_ASSERT(w.cluster.hosts[node.host].can_aggregate);
    if (RanksOn(w, node.host) == 0 && n != 0) RC_ASSERT(!node.children.empty());
  }
  for (size_t h = 0; h < w.cluster.hosts.size(); ++h) {
    RC_ASSERT(seen[h] <= 1);
    if (RanksOn(w, h) > 0) RC_ASSERT(seen[h] == 1);
  }
}

// From the rates alone: every host with ranks sends one contribution and gets one result.
double Bound(const World& w) {
  size_t workers = 0;
  double bound = 0;
  for (size_t h = 0; h < w.cluster.hosts.size(); ++h) {
    if (RanksOn(w, h) == 0) continue;
    ++workers;
    for (double rate : {w.cluster.hosts[h].up_bps, w.cluster.hosts[h].down_bps}) {
      if (rate > 0) bound = std::max(bound, static_cast<double>(w.job.bytes) * 8 / rate);
    }
  }
  return workers < 2 ? 0 : bound;
}

void CheckCandidate(const World& w, const Candidate& c) {
  double sum = 0;
  for (const Tree& tree : c.trees) {
    CheckTree(w, tree);
    RC_ASSERT(tree.weight > 0);
    sum += tree.weight;
  }
  RC_ASSERT(std::abs(sum - 1) < 1e-9);
  RC_ASSERT(c.trees.size() <= w.settings.trees_max);
  RC_ASSERT(c.predicted.seconds >= Bound(w) * (1 - 1e-9));

  auto recounted = Recounted(w, c.trees);
  double busiest = 0;
  for (const LinkLoad& link : c.predicted.links) {
    RC_ASSERT(std::abs(link.bytes - recounted[link.name]) <= 1e-6 * (1 + link.bytes));
    recounted.erase(link.name);
    if (link.rate_bps > 0) busiest = std::max(busiest, link.bytes * 8 / link.rate_bps);
  }
  RC_ASSERT(recounted.empty());
  RC_ASSERT(std::abs(c.predicted.seconds - busiest) <= 1e-8 * busiest);
}

RC_GTEST_PROP(Plan, HoldsForAnyCluster, ()) {
  const World w = AnyWorld();
  const auto plan = MakePlan(w.cluster, w.job, w.settings);
  if (!plan) {
    RC_ASSERT(plan.error().code == ErrorCode::kUnavailable);
    RC_SUCCEED("no shape is possible");
  }
  RC_TAG(std::string(NameOf(plan->choice().shape)));
  RC_ASSERT(plan->candidates.size() == ShapeNames().size());
  RC_ASSERT(plan->choice().is_possible());
  RC_ASSERT(std::abs(plan->bound_s - Bound(w)) <= 1e-9 * Bound(w));
  for (const Candidate& c : plan->candidates) {
    if (!c.is_possible()) continue;
    CheckCandidate(w, c);
    RC_ASSERT(plan->choice().predicted.seconds <= c.predicted.seconds * 1.001);
  }
}

// Nothing depends on chance or on what was planned before.
RC_GTEST_PROP(Plan, IsAFunctionOfItsInput, ()) {
  const World w = AnyWorld();
  const auto a = MakePlan(w.cluster, w.job, w.settings), b = MakePlan(w.cluster, w.job, w.settings);
  RC_ASSERT(a.has_value() == b.has_value());
  if (!a) return;
  RC_ASSERT(a->reason == b->reason);
  for (size_t t = 0; t < a->choice().trees.size(); ++t)
    RC_ASSERT(a->choice().trees[t].weight == b->choice().trees[t].weight);
}

// Of links only: a faster host may change who leads, and who leads follows a rule that need not be the optimum.
RC_GTEST_PROP(Plan, FasterRackLinksNeverHurt, ()) {
  World w = AnyWorld();
  w.cluster.oversubscription = 4;
  const auto slow = MakePlan(w.cluster, w.job, w.settings);
  w.cluster.oversubscription = 1;
  const auto fast = MakePlan(w.cluster, w.job, w.settings);
  RC_ASSERT(slow.has_value() == fast.has_value());
  if (!slow) return;
  RC_ASSERT(fast->choice().predicted.seconds <= slow->choice().predicted.seconds * 1.003);
}

}  // namespace
}  // namespace mlnet::plan
