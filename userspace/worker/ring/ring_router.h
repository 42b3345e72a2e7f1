// SPDX-License-Identifier: Apache-2.0
// One rank's place in the ring, without sockets: what it adds, passes on and keeps.
// Packet s begins at rank s mod n, so that all links carry the same; each rank adds its own contribution, the last one has
// the result, which goes round once. 2(n - 1)/n of the bytes cross each link, as in a ring all-reduce.
// Invariants: (1) a sum waits here until this rank has contributed, a contribution until the sum comes; (2) both are at
// most two pools of packets a stream: nobody sends s + P before all have contributed to s.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "config.h"
#include "mlnet/error.h"
#include "mlnet/event.h"
#include "ring/agreement.h"
#include "ring/ring_lanes.h"
#include "ring/ring_message.h"
#include "ring/ring_sum.h"

namespace mlnet::worker {

class RingRouter {
 public:
  /// `next` outlives the router.
  RingRouter(const EngineConfig& config, RingSink& next);

  /// Passes on the results that this rank is to: `kernel_cells` is its inbox, which nobody writes any more. `settled`: by lane.
  Result<void> Begin(std::vector<Settled> settled, const mlnet_cell* kernel_cells);
  /// This rank's own packet, as its lane built it; each once.
  void Contribute(std::span<const std::byte> packet);
  /// From the previous rank. An error ends the job.
  Result<void> TakePacket(uint16_t hops, std::span<const std::byte> packet);
  Result<void> TakeMissing(uint16_t hops, std::span<const std::byte> body);
  /// Tells the others which sums wait for this rank.
  void TellMissing();

  const mlnet_cell* cells() const { return cells_.data(); }
  bool NextNotice(mlnet_notice& notice);
  /// Whose contribution a packet of this rank waits for, as far as anybody said.
  std::optional<int> WhoIsMissing(uint8_t tree, uint8_t class_stream, uint64_t seq) const;
  /// Whether the kernel had summed the packet before the ring took over.
  bool WasSummedBefore(uint8_t tree, uint8_t class_stream, uint64_t seq) const;
  /// Results of the kernel that have not passed here yet: others may wait for them.
  uint64_t num_expected() const { return num_expected_; }

 private:
  struct Lane {
    RingLane shape;
    Settled settled;
    std::unordered_map<uint64_t, RingSum> own;  // by seq: wait for the sum
    std::unordered_map<uint64_t, RingSum> sums;  // wait for the own contribution
    std::optional<RingMissing> missing;
  };

  std::optional<size_t> LaneOf(uint8_t tree, uint8_t class_stream) const;
  int StartOf(uint64_t seq) const { return static_cast<int>(seq % static_cast<uint64_t>(config_.world_size)); }
  Result<void> TakeSum(Lane& lane, const RingSum& sum);
  void Join(Lane& lane, RingSum sum, const RingSum& own);
  void TakeResult(Lane& lane, const RingSum& result, uint16_t hops);
  void Publish(const Lane& lane, const RingSum& result);
  void Pass(uint8_t type, uint16_t hops, const RingSum& sum);

  const EngineConfig config_;
  RingSink& next_;
  std::vector<Lane> lanes_;
  std::vector<mlnet_cell> cells_;  // laid out as the inbox
  std::deque<mlnet_notice> notices_;
  uint64_t num_expected_ = 0;
};

}  // namespace mlnet::worker
