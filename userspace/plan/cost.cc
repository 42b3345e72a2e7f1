// SPDX-License-Identifier: Apache-2.0
#include "plan/cost.h"

#include <algorithm>
#include <set>

namespace mlnet::plan {
namespace {

// One copy of a packet stream from host to host: every link direction on its way carries it once.
void AddRoute(const Site& site, size_t from, size_t to, double amount, std::vector<double>& loads) {
  loads[site.Up(from)] += amount;
  loads[site.Down(to)] += amount;
  const int source = site.rack_of[from], target = site.rack_of[to];
  if (source == target) return;
  if (source >= 0) loads[site.RackUp(source)] += amount;
  if (target >= 0) loads[site.RackDown(target)] += amount;
}

// One multicast packet crosses each link at most once, however many of the receivers are behind it.
void AddMulticast(const Site& site, size_t from, const std::vector<size_t>& to, std::vector<double>& loads) {
  const int source = site.rack_of[from];
  std::set<int> other_racks;
  for (size_t host : to) {
    loads[site.Down(host)] += 1;
    if (site.rack_of[host] != source) other_racks.insert(site.rack_of[host]);
  }
  loads[site.Up(from)] += 1;
  if (source >= 0 && !other_racks.empty()) loads[site.RackUp(source)] += 1;
  for (int rack : other_racks) {
    if (rack >= 0) loads[site.RackDown(rack)] += 1;
  }
}

std::vector<size_t> HostsBelow(const Tree& tree, const Node& node) {
  std::vector<size_t> hosts;
  for (size_t child : node.children) hosts.push_back(tree.nodes[child].host);
  return hosts;
}

double LatencyOf(const Site& site, const std::vector<Tree>& trees) {
  int levels = 0;
  for (const Tree& tree : trees) levels = std::max(levels, LevelsOf(site, tree));
  // With push nothing comes back after the data.
  const double ways = 2 * site.settings.round_trips - (site.job.traffic == Traffic::kPush ? 1 : 0);
  return ways * levels * site.settings.level_s;
}

}  // namespace

std::vector<double> LoadsOf(const Site& site, const Tree& tree) {
  std::vector<double> loads(site.links.size(), 0);
  for (const Node& node : tree.nodes) {
    if (node.parent >= 0) AddRoute(site, node.host, tree.nodes[static_cast<size_t>(node.parent)].host, 1, loads);
    if (node.children.empty() || site.job.traffic == Traffic::kPush) continue;
    const std::vector<size_t> below = HostsBelow(tree, node);
    if (site.job.multicast) {
      AddMulticast(site, node.host, below, loads);
    } else {
      for (size_t host : below) AddRoute(site, node.host, host, 1, loads);
    }
  }
  return loads;
}

int LevelsOf(const Site& site, const Tree& tree) {
  int levels = 0;
  for (const Node& node : tree.nodes) {
    const size_t ranks = site.ranks_on[node.host];
    if (ranks == 0) continue;
    int depth = ranks > 1 || !node.children.empty() ? 1 : 0;
    for (int up = node.parent; up >= 0; up = tree.nodes[static_cast<size_t>(up)].parent) ++depth;
    levels = std::max(levels, depth);
  }
  return levels;
}

Prediction PredictLoads(const Site& site, const std::vector<double>& bytes_on, double latency_s) {
  Prediction p;
  for (size_t l = 0; l < site.links.size(); ++l) {
    const Link& link = site.links[l];
    const double seconds = link.rate_bps > 0 ? bytes_on[l] * 8 / link.rate_bps : 0;
    p.links.push_back({link.name, bytes_on[l], link.rate_bps, seconds});
    // Equal but for rounding: the first one is named.
    if (seconds > p.bandwidth_s * (1 + 1e-9)) {
      p.bandwidth_s = seconds;
      p.limiting_link = link.name;
    }
  }
  for (size_t r = 0; r < site.racks.size(); ++r) p.core_bytes += bytes_on[site.RackUp(static_cast<int>(r))];
  p.latency_s = latency_s;
  p.seconds = p.bandwidth_s + p.latency_s;
  return p;
}

Prediction Predict(const Site& site, const std::vector<Tree>& trees) {
  std::vector<double> bytes_on(site.links.size(), 0);
  int levels = 0;
  for (const Tree& tree : trees) {
    const std::vector<double> loads = LoadsOf(site, tree);
    for (size_t l = 0; l < loads.size(); ++l) bytes_on[l] += tree.weight * loads[l] * site.contribution_bytes;
    levels = std::max(levels, LevelsOf(site, tree));
  }
  Prediction p = PredictLoads(site, bytes_on, LatencyOf(site, trees));
  p.levels = levels;
  return p;
}

double BoundSeconds(const Site& site) {
  if (site.workers.size() < 2 && site.job.traffic == Traffic::kAllReduce) return 0;  // may stay on its host
  double bound = 0;
  for (size_t host : site.workers) {
    const Host& h = site.cluster.hosts[host];
    if (h.up_bps > 0) bound = std::max(bound, site.contribution_bytes * 8 / h.up_bps);
    if (h.down_bps > 0 && site.job.traffic == Traffic::kAllReduce)
      bound = std::max(bound, site.contribution_bytes * 8 / h.down_bps);
  }
  return bound;
}

Ring RingOf(const Site& site, const std::vector<size_t>& host_of_rank, std::string order) {
  const size_t p = host_of_rank.size();
  const double bytes = static_cast<double>(site.job.bytes) * site.settings.ring_overhead;
  const double per_hop = 2.0 * static_cast<double>(p - 1) / static_cast<double>(p) * bytes;
  std::vector<double> bytes_on(site.links.size(), 0);
  for (size_t rank = 0; rank < p; ++rank) {
    const size_t from = host_of_rank[rank], to = host_of_rank[(rank + 1) % p];
    if (from != to) AddRoute(site, from, to, per_hop, bytes_on);
  }
  return {std::move(order), PredictLoads(site, bytes_on, 2.0 * static_cast<double>(p - 1) * site.settings.level_s)};
}

std::vector<Ring> RingsOf(const Site& site) {
  std::vector<size_t> in_order;
  for (const std::string& name : site.job.host_of_rank) {
    const auto it = std::find_if(site.cluster.hosts.begin(), site.cluster.hosts.end(),
                                 [&](const Host& h) { return h.name == name; });
    in_order.push_back(static_cast<size_t>(it - site.cluster.hosts.begin()));
  }
  std::vector<Ring> rings = {RingOf(site, in_order, "ranks in the order given")};
  if (site.racks.size() < 2) return rings;
  // The k-th rank of every rack, then the k+1-th: what a scheduler that spreads ranks over racks hands out.
  std::vector<size_t> taken(site.racks.size() + 1, 0);
  std::vector<std::pair<size_t, size_t>> turns;  // turn of the rank, rank
  for (size_t rank = 0; rank < in_order.size(); ++rank)
    turns.emplace_back(taken[static_cast<size_t>(site.rack_of[in_order[rank]] + 1)]++, rank);
  std::stable_sort(turns.begin(), turns.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<size_t> interleaved;
  for (const auto& [turn, rank] : turns) interleaved.push_back(in_order[rank]);
  rings.push_back(RingOf(site, interleaved, "ranks interleaved over racks"));
  return rings;
}

}  // namespace mlnet::plan
