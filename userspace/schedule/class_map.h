// SPDX-License-Identifier: Apache-2.0
// Priorities on traffic classes: any number of priorities, at most eight classes, and a more urgent priority is never in a
// less urgent class. Overtaking happens between classes only (core.h says why), so where the borders lie decides how
// close to the best order it comes: an urgent tensor waits for everything of its own class that was produced before it.
// A level is a place among the classes in use, 0 the most urgent; which traffic class that is, Core is told.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "schedule/layers.h"

namespace mlnet::schedule {

inline constexpr size_t kLevelsMax = 8;

struct ClassMap {
  size_t num_levels = 1;
  /// The last priority of each level, rising; the last level takes all that are left.
  std::array<uint32_t, kLevelsMax> last_priority{std::numeric_limits<uint32_t>::max()};

  size_t LevelOf(uint32_t priority) const {
    size_t level = 0;
    while (level + 1 < num_levels && priority > last_priority[level]) ++level;
    return level;
  }
  bool operator==(const ClassMap&) const = default;
};

struct TensorDemand {
  uint32_t priority = 0;
  uint64_t bytes = 0;
};

/// The map with the shortest iteration, of all; of several the one where tensors wait the least for others of their own
/// level. Priority is the layer's index. The times are agreed (the maximum over ranks, say): every rank gets the same map.
ClassMap MapLayers(std::span<const Layer> layers, size_t num_levels);

/// Without times: as if forward took as long as all transfers, and the same in each priority, where order matters most.
ClassMap MapBytes(std::span<const TensorDemand> tensors, size_t num_levels);

/// What an iteration takes when levels interrupt each other and go by production inside.
uint64_t IterationInLevels(std::span<const Layer> layers, const ClassMap& map);

}  // namespace mlnet::schedule
