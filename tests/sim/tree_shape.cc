// SPDX-License-Identifier: Apache-2.0
#include "sim/tree_shape.h"

#include <algorithm>
#include <set>

namespace mlnet::sim {

std::vector<int> TreeShape::RanksOf(int host) const {
  std::vector<int> ranks;
  for (int r = host; r < options_.ranks && host < options_.hosts; r += options_.hosts) ranks.push_back(r);
  return ranks;
}

// The hosts of a rack lead in turn, so that trees spread over them; the root leads its own rack.
int TreeShape::LeaderOf(int rack, int tree) const {
  const int root = RootOf(tree), size = options_.hosts / options_.racks;
  if (root < options_.hosts && RackOf(root) == rack) return root;
  return rack * size + tree % size;
}

bool TreeShape::IsNode(int host, int tree) const {
  if (host == RootOf(tree)) return true;
  if (host >= options_.hosts) return false;
  return (options_.combines && RanksOf(host).size() > 1) ||
         (options_.racks > 0 && host == LeaderOf(RackOf(host), tree));
}

int TreeShape::ParentOf(int host, int tree) const {
  const int root = RootOf(tree);
  if (host == root) return -1;
  if (options_.racks == 0) return root;
  const int leader = LeaderOf(RackOf(host), tree);
  return host == leader ? root : leader;
}

std::vector<Child> TreeShape::ChildrenOf(int host, int tree) const {
  std::vector<Child> children;
  for (const int rank : RanksOf(host)) children.push_back({rank, host});
  for (int h = 0; h < options_.hosts; ++h) {
    if (h == host || ParentOf(h, tree) != host) continue;
    if (IsNode(h, tree)) children.push_back({-1, h});
    else for (const int rank : RanksOf(h)) children.push_back({rank, h});
  }
  return children;
}

int TreeShape::CopiesOf(int host, int tree) const {
  std::set<int> others;
  for (const Child& child : ChildrenOf(host, tree)) {
    if (child.host != host) others.insert(child.host);
  }
  return static_cast<int>(others.size());
}

int TreeShape::NodeOf(int rank, int tree) const {
  const int host = rank % options_.hosts;
  return IsNode(host, tree) ? host : ParentOf(host, tree);
}

int TreeShape::ChildIndexOf(int rank, int tree) const {
  const auto children = ChildrenOf(NodeOf(rank, tree), tree);
  return static_cast<int>(std::find_if(children.begin(), children.end(), [&](const Child& c) { return c.rank == rank; }) -
                          children.begin());
}

int TreeShape::NodeIndexOf(int host, int tree) const {
  const auto children = ChildrenOf(ParentOf(host, tree), tree);
  return static_cast<int>(std::find_if(children.begin(), children.end(), [&](const Child& c) { return c.host == host; }) -
                          children.begin());
}

}  // namespace mlnet::sim
