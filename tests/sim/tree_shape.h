// SPDX-License-Identifier: Apache-2.0
// Who sends to whom in a simulated job: which hosts are nodes of a tree, and the children of each.
#pragma once

#include <vector>

namespace mlnet::sim {

struct ShapeOptions {
  int ranks = 2;
  int hosts = 2;  // with ranks: rank r runs on host r mod hosts
  int racks = 0;  // of equal size, in the order of the hosts; each has a node of its own below the root. 0: none
  bool workers_sum = false;  // roots are worker hosts, in turn; else the hosts behind them
  bool combines = false;     // hosts of several ranks are inner nodes
};

/// A rank, or (rank -1) the node of a host.
struct Child {
  int rank = -1;
  int host = 0;
};

class TreeShape {
 public:
  explicit TreeShape(const ShapeOptions& options) : options_(options) {}

  int RootOf(int tree) const { return options_.workers_sum ? tree % options_.hosts : options_.hosts + tree; }
  /// Root or inner node.
  bool IsNode(int host, int tree) const;
  /// The node above a host; -1: it is the root.
  int ParentOf(int host, int tree) const;
  /// Own ranks first, then other hosts.
  std::vector<Child> ChildrenOf(int host, int tree) const;
  /// Hosts that a node sends results to.
  int CopiesOf(int host, int tree) const;
  std::vector<int> RanksOf(int host) const;

  /// The node that a rank sends to, and its index there.
  int NodeOf(int rank, int tree) const;
  int ChildIndexOf(int rank, int tree) const;
  /// Index of an inner node at its parent.
  int NodeIndexOf(int host, int tree) const;

 private:
  int LeaderOf(int rack, int tree) const;
  int RackOf(int host) const { return host / (options_.hosts / options_.racks); }

  ShapeOptions options_;
};

}  // namespace mlnet::sim
