// SPDX-License-Identifier: Apache-2.0
// The other end of a rank's lane, in the job's server: takes the sums of a stream as the root completes them, and
// answers each. A push is answered with what the ranks need to go on, a pull with the caller's bytes.
// Why no timer: a rank whose answer is missing asks again, and the root passes that on as a reminder.
// Invariants: (1) a sum is copied out before it is answered; (2) what answers are made of is given up only when the
// root has said that it took them (mlnet_cell.bitmap), since until then it may ask again.
#pragma once

#include <vector>

#include "lane_base.h"

namespace mlnet::worker {

class ServerLane final : public LaneBase {
 public:
  /// As Lane's.
  ServerLane(const LaneContext& context, size_t tree, int traffic_class, ServerLane* repairs);

  bool Receive(uint64_t now_ns) override;
  uint32_t Send(uint64_t, uint32_t) override { return 0; }  // answers leave as the sums come
  void OnNotice(const mlnet_notice& notice, uint64_t now_ns) override;
  void SetRtoBounds(uint64_t, uint64_t) override {}
  void SetGrant(const Grant& grant, uint32_t, uint64_t now_ns) override { KeepWaiting(grant.waits, now_ns); }

 private:
  enum class State : uint8_t { kExpected, kAnswered, kAcknowledged };

  bool Look(Collective& collective, uint64_t packet);
  bool IsAcknowledged(uint64_t seq) const;
  bool Take(Collective& collective, uint64_t packet);
  void Answer(const Collective& collective, uint64_t packet);
  Collective* Find(uint64_t seq) const;
  Error TimeoutError(const Collective& collective) const override;

  std::vector<State> states_;  // of the P packets from oldest_ on, by slot
};

}  // namespace mlnet::worker
