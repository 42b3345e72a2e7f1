// SPDX-License-Identifier: Apache-2.0
// One tree of a plan, read: who is a node of it, and who sends to whom.
// A host with several ranks combines them (over its local link), and a host with others below it is a node by that;
// any other host's ranks send straight to the node of the host above.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "control/model.h"

namespace mlnet::control {

/// Who sends to a node: a rank, or the node of another host.
struct TreeChild {
  std::vector<int> ranks;  // below it, ascending
  std::string host;
  std::string address;  // that its packets come from
};

/// Ranks on `host`, ascending: local index -> rank.
std::vector<int> LocalRanks(const Plan& plan, const std::string& host);

const PlanPort& RootOf(const Plan& plan, size_t tree);
const PlanPort& PortOf(const Plan& plan, size_t tree, size_t node);
/// Where `host` is in PlanTree::nodes.
std::optional<size_t> FindNode(const Plan& plan, size_t tree, const std::string& host);
/// The NIC that `host` uses in a tree; null: it has no part in it.
const PlanPort* PortOfHost(const Plan& plan, size_t tree, const std::string& host);

/// Whether the host at `node` sums: the root, who has others below, and who has several ranks behind a local link.
bool IsSumming(const Plan& plan, size_t tree, size_t node);
/// Whether it sums and sends on to a node above.
bool IsInner(const Plan& plan, size_t tree, const std::string& host);
/// By child index: in the order of their first ranks.
std::vector<TreeChild> ChildrenOf(const Plan& plan, size_t tree, size_t node);
/// The hosts that a node sends results to, each by the index of its first child.
std::vector<size_t> FanOf(const Plan& plan, size_t tree, size_t node);

/// The node that a rank sends to, and the rank's child index there.
size_t NodeOfRank(const Plan& plan, size_t tree, int rank);
uint8_t ChildIndexOf(const Plan& plan, size_t tree, int rank);
/// The node that an inner node sends to, and its child index there.
size_t NodeAbove(const Plan& plan, size_t tree, size_t node);
uint8_t IndexAbove(const Plan& plan, size_t tree, size_t node);

}  // namespace mlnet::control
