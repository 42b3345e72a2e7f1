// SPDX-License-Identifier: Apache-2.0
// Stage 5 of the tensor path: how many packets of a class may be on their way.
// Why: slots bound it above (P); below that, the aggregator's rings and the links do.
// Rule: slow start from the first window, then one packet a round trip; halved, at most once for what was on its way together,
// when more packets had to be sent again than lone losses explain. Those are repaired, not punished:
// what one rank loses all ranks see late, so a window that reacts to each would shrink to nothing. Part of the pool is
// kept free for repairs; where nothing has been lost for long it may be used, too, until it costs a loss.
// Before queues overflow they say so: answers with a congestion mark take from the window what DCTCP takes (RFC 8257: half of the
// marked share, at most once a round trip). Where no queue marks, a window whose packets wait too long in one grows no further.
// Not here: what is resent and when (retransmit.h).
#pragma once

#include <algorithm>
#include <cstdint>

namespace mlnet::worker {

class SendWindow {
 public:
  /// `lossless_most`: of a path that loses nothing; not less than `most`, which is for all others.
  SendWindow(uint32_t first, uint32_t most, uint32_t lossless_most, int world_size);

  uint32_t size() const { return std::min(static_cast<uint32_t>(size_), limit_); }
  /// From outside: at most so many, whatever the path would carry. A window that is let go grows again from there.
  void SetLimit(uint32_t limit);
  /// The ranks hear of a new grant one after the other, and what waits for the last of them comes late: until then only what was
  /// overtaken counts as lost.
  void IgnoreLateUntil(uint64_t until_ns) { late_counts_ns_ = until_ns; }
  /// A packet was answered while `in_flight` (it included) were on their way. `queued_ns`: what round trips take now above the
  /// shortest one there was.
  void OnAnswer(uint64_t now_ns, uint64_t srtt_ns, uint64_t queued_ns, uint32_t in_flight);
  /// That answer, or some contribution to its sum, met a queue that was filling. Call it before OnAnswer.
  void OnMark(uint64_t now_ns, uint64_t srtt_ns);
  /// A packet that was sent once, at `sent_ns`, is missing: its own, or that of another rank. `is_late`: its timer says so, and not
  /// that later ones are answered.
  void OnLoss(uint64_t now_ns, uint64_t srtt_ns, uint64_t sent_ns, bool is_late);

 private:
  void KeepRoomForRepairs();
  void StartRound(uint64_t now_ns, uint64_t srtt_ns);

  uint32_t first_;
  uint32_t limit_;
  double size_;
  double floor_;
  double most_;
  double lossless_most_;
  double threshold_;        // slow start up to here
  double tolerated_share_;  // of a round's packets
  uint64_t late_counts_ns_ = 0;  // from here on
  uint64_t round_ends_ns_ = 0;
  uint32_t answered_in_round_ = 0;
  uint32_t lost_in_round_ = 0;
  uint32_t marked_in_round_ = 0;
  uint64_t halved_ns_ = 0;  // what was sent before says nothing about the window since
  double marked_share_ = 1;      // of a round's answers, on a moving average: DCTCP's alpha
  uint64_t marks_count_ns_ = 0;  // from here on
  uint64_t answers_since_loss_ = 0;
};

}  // namespace mlnet::worker
