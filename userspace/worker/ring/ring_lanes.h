// SPDX-License-Identifier: Apache-2.0
// The streams of a job in one order, the same on all ranks: by tree, class and stream.
#pragma once

#include <vector>

#include "config.h"

namespace mlnet::worker {

struct RingLane {
  uint8_t tree = 0;  // as on the wire
  uint8_t child = 0;
  uint8_t class_stream = 0;
  PoolConfig pool;
};

inline std::vector<RingLane> LanesOf(const EngineConfig& config) {
  std::vector<RingLane> lanes;
  for (const TreeConfig& tree : config.trees) {
    for (uint8_t c = 0; c < MLNET_CLASSES_MAX; ++c) {
      if (!tree.pools[c].is_open) continue;
      lanes.push_back({tree.tree, tree.child, MLNET_CLASS_STREAM(c, 0), tree.pools[c]});
      lanes.push_back({tree.tree, tree.child, MLNET_CLASS_STREAM(c, 1), tree.fixups[c]});
    }
  }
  return lanes;
}

}  // namespace mlnet::worker
