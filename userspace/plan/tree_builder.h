// SPDX-License-Identifier: Apache-2.0
// Grows one tree and keeps every node within its number of children.
#pragma once

#include <optional>

#include "plan/site.h"

namespace mlnet::plan {

class TreeBuilder {
 public:
  TreeBuilder(const Site& site, size_t root);

  /// Puts `hosts` (fastest first) below `node`; where they are more than `room`, some of them lead groups of the others,
  /// beginning with the `turn`-th of the fast ones. Returns the nodes in the order of `hosts`.
  Result<std::vector<size_t>> Attach(size_t node, const std::vector<size_t>& hosts, size_t room, size_t turn);

  /// Puts `hosts` (fastest first) below `node` so that no node gets more than `degree` of them: level by level.
  Result<std::vector<size_t>> AttachByDegree(size_t node, const std::vector<size_t>& hosts, size_t degree);

  /// Children that `node` may still get.
  size_t RoomOf(size_t node) const;

  static constexpr size_t kRoot = 0;
  Tree Take() { return std::move(tree_); }

 private:
  size_t Add(size_t parent, size_t host);
  std::vector<size_t> NodesOf(const std::vector<size_t>& hosts) const;
  Result<void> AttachGroups(size_t node, const std::vector<size_t>& hosts, size_t room, size_t turn);

  const Site& site_;
  Tree tree_;
};

/// Fastest first; equally fast ones stay in order, those that cannot aggregate come last.
std::vector<size_t> FastestFirst(const Site& site, std::vector<size_t> hosts);

/// Those of `hosts` that may lead in turn: able to aggregate, at least half as fast as the fastest such.
std::vector<size_t> Leaders(const Site& site, const std::vector<size_t>& hosts);

}  // namespace mlnet::plan
