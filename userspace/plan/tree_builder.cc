// SPDX-License-Identifier: Apache-2.0
#include "plan/tree_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

namespace mlnet::plan {
namespace {

tl::unexpected<Error> NobodyLeads(const Site& site, size_t host, size_t num_hosts) {
  return Err(ErrorCode::kUnsupported,
             fmt::format("{} hosts are too many below {}, and none of them can aggregate", num_hosts,
                         site.cluster.hosts[host].name),
             "let more hosts aggregate");
}

}  // namespace

std::vector<size_t> FastestFirst(const Site& site, std::vector<size_t> hosts) {
  std::stable_sort(hosts.begin(), hosts.end(), [&](size_t a, size_t b) {
    if (site.CanAggregate(a) != site.CanAggregate(b)) return site.CanAggregate(a);
    return site.RateOf(a) > site.RateOf(b);
  });
  return hosts;
}

std::vector<size_t> Leaders(const Site& site, const std::vector<size_t>& hosts) {
  std::vector<size_t> leaders;
  for (size_t host : FastestFirst(site, hosts)) {
    if (!site.CanAggregate(host)) break;
    if (leaders.empty() || site.RateOf(host) * 2 >= site.RateOf(leaders.front())) leaders.push_back(host);
  }
  return leaders;
}

TreeBuilder::TreeBuilder(const Site& site, size_t root) : site_(site) { tree_.nodes.push_back({root, -1}); }

size_t TreeBuilder::Add(size_t parent, size_t host) {
  tree_.nodes.push_back({host, static_cast<int>(parent)});
  tree_.nodes[parent].children.push_back(tree_.nodes.size() - 1);
  return tree_.nodes.size() - 1;
}

size_t TreeBuilder::RoomOf(size_t node) const {
  const size_t taken = site_.ranks_on[tree_.nodes[node].host] + tree_.nodes[node].children.size();
  return site_.settings.children_max - std::min(taken, site_.settings.children_max);
}

std::vector<size_t> TreeBuilder::NodesOf(const std::vector<size_t>& hosts) const {
  std::vector<size_t> nodes;
  for (size_t host : hosts) {
    const auto it =
        std::find_if(tree_.nodes.begin(), tree_.nodes.end(), [&](const Node& n) { return n.host == host; });
    nodes.push_back(static_cast<size_t>(it - tree_.nodes.begin()));
  }
  return nodes;
}

Result<std::vector<size_t>> TreeBuilder::Attach(size_t node, const std::vector<size_t>& hosts, size_t room,
                                                size_t turn) {
  if (hosts.size() <= room) {
    for (size_t host : hosts) Add(node, host);
  } else if (auto ok = AttachGroups(node, hosts, room, turn); !ok) {
    return tl::make_unexpected(ok.error());
  }
  return NodesOf(hosts);
}

// About sqrt(n) groups of sqrt(n): the least incast at both levels.
Result<void> TreeBuilder::AttachGroups(size_t node, const std::vector<size_t>& hosts, size_t room, size_t turn) {
  std::vector<size_t> leaders = Leaders(site_, hosts);
  if (leaders.empty() || room == 0) return NobodyLeads(site_, tree_.nodes[node].host, hosts.size());
  std::rotate(leaders.begin(), leaders.begin() + static_cast<std::ptrdiff_t>(turn % leaders.size()), leaders.end());
  const auto square = static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(hosts.size()))));
  leaders.resize(std::min({std::max<size_t>(square, 1), room, leaders.size()}));

  std::vector<std::vector<size_t>> groups(leaders.size());
  size_t next = 0;
  for (size_t host : hosts) {
    if (std::find(leaders.begin(), leaders.end(), host) == leaders.end()) groups[next++ % groups.size()].push_back(host);
  }
  for (size_t g = 0; g < leaders.size(); ++g) {
    const size_t below = Add(node, leaders[g]);
    if (auto ok = Attach(below, groups[g], RoomOf(below), turn); !ok) return tl::make_unexpected(ok.error());
  }
  return {};
}

Result<std::vector<size_t>> TreeBuilder::AttachByDegree(size_t node, const std::vector<size_t>& hosts,
                                                        size_t degree) {
  std::deque<std::pair<size_t, size_t>> open = {{node, std::min(degree, RoomOf(node))}};  // node, children it may get
  for (size_t host : hosts) {
    while (!open.empty() && open.front().second == 0) open.pop_front();
    if (open.empty()) return NobodyLeads(site_, tree_.nodes[node].host, hosts.size());
    const size_t added = Add(open.front().first, host);
    --open.front().second;
    if (site_.CanAggregate(host)) open.emplace_back(added, std::min(degree, RoomOf(added)));
  }
  return NodesOf(hosts);
}

}  // namespace mlnet::plan
