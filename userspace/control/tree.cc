// SPDX-License-Identifier: Apache-2.0
#include "control/tree.h"

#include <algorithm>

namespace mlnet::control {
namespace {

bool HasHostsBelow(const PlanTree& tree, size_t node) {
  return std::any_of(tree.nodes.begin(), tree.nodes.end(), [&](const PlanNode& n) { return n.parent == static_cast<int>(node); });
}

void AddRanksBelow(const Plan& plan, size_t tree, size_t node, std::vector<int>& ranks) {
  const auto own = LocalRanks(plan, PortOf(plan, tree, node).host);
  ranks.insert(ranks.end(), own.begin(), own.end());
  const auto& nodes = plan.trees[tree].nodes;
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (nodes[n].parent == static_cast<int>(node)) AddRanksBelow(plan, tree, n, ranks);
  }
}

void AddRanksOf(const Plan& plan, const PlanPort& port, std::vector<TreeChild>& children) {
  for (const int rank : LocalRanks(plan, port.host)) children.push_back({{rank}, port.host, port.address});
}

uint8_t IndexOfRank(const std::vector<TreeChild>& children, int rank) {
  const auto it = std::find_if(children.begin(), children.end(), [&](const TreeChild& c) {
    return std::binary_search(c.ranks.begin(), c.ranks.end(), rank);
  });
  return static_cast<uint8_t>(it - children.begin());
}

}  // namespace

std::vector<int> LocalRanks(const Plan& plan, const std::string& host) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < plan.host_of_rank.size(); ++rank) {
    if (plan.host_of_rank[rank] == host) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

const PlanPort& PortOf(const Plan& plan, size_t tree, size_t node) { return plan.ports.at(plan.trees[tree].nodes.at(node).port); }

const PlanPort& RootOf(const Plan& plan, size_t tree) { return PortOf(plan, tree, 0); }

std::optional<size_t> FindNode(const Plan& plan, size_t tree, const std::string& host) {
  for (size_t n = 0; n < plan.trees[tree].nodes.size(); ++n) {
    if (PortOf(plan, tree, n).host == host) return n;
  }
  return std::nullopt;
}

const PlanPort* PortOfHost(const Plan& plan, size_t tree, const std::string& host) {
  const auto node = FindNode(plan, tree, host);
  return node ? &PortOf(plan, tree, *node) : nullptr;
}

bool IsSumming(const Plan& plan, size_t tree, size_t node) {
  if (node == 0 || HasHostsBelow(plan.trees[tree], node)) return true;
  const PlanPort& port = PortOf(plan, tree, node);
  return !port.local_address.empty() && LocalRanks(plan, port.host).size() > 1;
}

bool IsInner(const Plan& plan, size_t tree, const std::string& host) {
  const auto node = FindNode(plan, tree, host);
  return node && *node != 0 && IsSumming(plan, tree, *node);
}

std::vector<TreeChild> ChildrenOf(const Plan& plan, size_t tree, size_t node) {
  std::vector<TreeChild> children;
  AddRanksOf(plan, PortOf(plan, tree, node), children);
  const auto& nodes = plan.trees[tree].nodes;
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (nodes[n].parent != static_cast<int>(node)) continue;
    const PlanPort& port = PortOf(plan, tree, n);
    if (!IsSumming(plan, tree, n)) {
      AddRanksOf(plan, port, children);
      continue;
    }
    TreeChild child{{}, port.host, port.address};
    AddRanksBelow(plan, tree, n, child.ranks);
    std::sort(child.ranks.begin(), child.ranks.end());
    children.push_back(std::move(child));
  }
  std::sort(children.begin(), children.end(), [](const TreeChild& a, const TreeChild& b) { return a.ranks < b.ranks; });
  return children;
}

std::vector<size_t> FanOf(const Plan& plan, size_t tree, size_t node) {
  const auto children = ChildrenOf(plan, tree, node);
  const std::string& own = PortOf(plan, tree, node).host;  // its ranks have the result in their inbox
  std::vector<size_t> fan;
  for (size_t c = 0; c < children.size(); ++c) {
    const auto same = [&](size_t k) { return children[k].host == children[c].host; };
    if (children[c].host != own && std::none_of(fan.begin(), fan.end(), same)) fan.push_back(c);
  }
  return fan;
}

size_t NodeAbove(const Plan& plan, size_t tree, size_t node) { return static_cast<size_t>(plan.trees[tree].nodes.at(node).parent); }

size_t NodeOfRank(const Plan& plan, size_t tree, int rank) {
  const size_t own = FindNode(plan, tree, plan.host_of_rank.at(static_cast<size_t>(rank))).value();
  return IsSumming(plan, tree, own) ? own : NodeAbove(plan, tree, own);
}

uint8_t ChildIndexOf(const Plan& plan, size_t tree, int rank) {
  return IndexOfRank(ChildrenOf(plan, tree, NodeOfRank(plan, tree, rank)), rank);
}

uint8_t IndexAbove(const Plan& plan, size_t tree, size_t node) {
  std::vector<int> ranks;
  AddRanksBelow(plan, tree, node, ranks);
  return IndexOfRank(ChildrenOf(plan, tree, NodeAbove(plan, tree, node)), ranks.front());
}

}  // namespace mlnet::control
