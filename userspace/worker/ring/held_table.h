// SPDX-License-Identifier: Apache-2.0
// The reports of all ranks about what they hold, as they come round the ring, and what follows from them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "ring/agreement.h"
#include "ring/ring_lanes.h"

namespace mlnet::worker {

class HeldTable {
 public:
  HeldTable(std::vector<RingLane> lanes, int world_size);

  /// `held`: by lane.
  std::vector<std::byte> Encode(int rank, const std::vector<Held>& held) const;
  /// A report of one rank; kProtocol where it does not fit this job.
  Result<void> Take(std::span<const std::byte> report);
  bool IsComplete() const { return num_missing_ == 0; }
  int FirstMissing() const;
  /// By lane. REQUIRES: complete.
  Result<std::vector<Settled>> SettleAll() const;

 private:
  const std::vector<RingLane> lanes_;
  std::vector<std::optional<std::vector<Held>>> by_rank_;
  size_t num_missing_;
};

}  // namespace mlnet::worker
