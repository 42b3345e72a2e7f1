// SPDX-License-Identifier: Apache-2.0
// Stage 5 of the tensor path: how many packets of a class may be on their way.
// Why: slots bound it above (P); below that, the aggregator's rings and the links do.
// Rule: slow start from the first window, then one packet a round trip; halved when more than an
// eighth of a round was lost, at most once a round. Lone losses are repaired, not punished (DESIGN.md).
// Not here: what is resent and when (retransmit.h).
#pragma once

#include <cstdint>

namespace mlnet::worker {

class SendWindow {
 public:
  SendWindow(uint32_t first, uint32_t most);

  uint32_t size() const { return static_cast<uint32_t>(size_); }
  /// A packet was answered while `in_flight` (it included) were on their way.
  void OnAnswer(uint64_t now_ns, uint64_t srtt_ns, uint32_t in_flight);
  /// A packet was answered only after it had been sent again, and it was this rank's that was missing.
  void OnLoss(uint64_t now_ns, uint64_t srtt_ns);

 private:
  void StartRound(uint64_t now_ns, uint64_t srtt_ns);

  double size_;
  double floor_;
  double most_;
  double threshold_;  // slow start up to here
  uint64_t round_ends_ns_ = 0;
  uint32_t answered_in_round_ = 0;
  uint32_t lost_in_round_ = 0;
  bool is_halved_in_round_ = false;
};

}  // namespace mlnet::worker
