// SPDX-License-Identifier: Apache-2.0
// One stream of a traffic class in one tree: its seq space, the collectives in it, and their packets on the way.
// The fix-up stream is a second lane, which is given repairs in the order of the collectives.
// Why: classes never wait for each other, so each has a pool, a window, timers and an order of its own.
// Rule 2: seq s is sent only after the result of s - P was copied out, and the result that carries the
// exponents of s. Results are copied out as they come, in any order; collectives end in any order.
// Not here: bytes (packetize.h), growth of the window (send_window.h), timer arithmetic (retransmit.h).
#pragma once

#include <deque>
#include <vector>

#include "flight_table.h"
#include "lane_base.h"
#include "packetize.h"
#include "retransmit.h"
#include "send_window.h"

namespace mlnet::worker {

class Lane final : public LaneBase {
 public:
  /// `tree`: index into the job's trees. `repairs`: the lane of the fix-up stream; null for that stream itself.
  Lane(const LaneContext& context, size_t tree, int traffic_class, Lane* repairs);

  bool Receive(uint64_t now_ns) override;
  uint32_t Send(uint64_t now_ns, uint32_t budget) override;
  void OnNotice(const mlnet_notice& notice, uint64_t now_ns) override;
  void SetRtoBounds(uint64_t min_ns, uint64_t max_ns) override { rtt_.SetBounds(min_ns, max_ns); }
  void SetGrant(const Grant& grant, uint32_t window, uint64_t now_ns) override;
  uint64_t NextEventNs() const override;
  void FailAll(const Error& error) override;
  bool Presses(uint64_t now_ns) override;
  bool HasAged(uint64_t now_ns) override;
  Held HeldResults() const override;
  void Resume(const Settled& settled) override;
  uint64_t srtt_ns() const { return rtt_.srtt_ns(); }

 private:
  enum class Readiness { kReady, kNotReady, kSlotTaken };

  Readiness ReadinessOf(const Collective& collective) const;
  bool HasRoomFor(const Collective& collective) const;
  void SendFirst(Collective& collective, uint64_t now_ns);
  void Resend(Flight& flight, uint64_t now_ns);
  void Build(const Collective& collective, uint64_t packet, bool is_retry);

  void Consume(Flight& flight, uint64_t now_ns);
  bool Fits(const mlnet_cell& cell, const Collective& collective, uint64_t packet);
  void OnAnswer(Flight& flight, uint64_t now_ns);
  void OnMark(uint64_t now_ns);
  void OnMissing(const Flight& flight, uint64_t now_ns, bool is_late);
  void Count(const Collective& collective, uint64_t seq);
  void Record(const Collective& collective, uint64_t received_ns, uint64_t now_ns);
  void OnPlaced(Collective& collective) override { unsent_.push_back(&collective); }

  void RunTimers(Flight& flight, uint64_t now_ns);
  void RunKeepAlive(Flight& flight, uint64_t now_ns);
  void AskWithOldest(uint64_t now_ns);
  void AskAfterSilence(uint64_t now_ns);
  bool IsOvertakenNow(const Flight& flight, uint64_t now_ns);
  void OnHeld(Flight& flight, uint64_t now_ns);
  void WakeAt(uint64_t at_ns) { next_timer_ns_ = std::min(next_timer_ns_, at_ns); }
  Error TimeoutError(const Collective& collective) const override;
  Error RingTimeoutError(const Collective& collective) const;
  std::string WhoIsMissing() const;

  const Packetizer packetizer_;

  std::deque<Collective*> unsent_;                  // those with packets left to send, in order
  const Collective* aged_ = nullptr;                // the first of them, once it has waited for too long
  std::vector<uint64_t> next_of_slot_;              // the seq each slot takes next

  FlightTable flights_;
  const uint32_t window_most_;
  SendWindow window_;
  RttEstimator rtt_;
  Overtaken overtaken_;
  RetryGate gate_;
  uint64_t next_timer_ns_ = kNever;
  uint64_t rearmed_ns_ = 0;  // no timer runs out before
  bool has_asked_ = false;      // since the last answer, because of silence
  bool has_timed_out_ = false;  // in this scan: the oldest packet is to ask
  uint64_t timed_out_ns_ = 0;   // when it last did

  // While jobs meet.
  Grant grant_;
  uint64_t opens_ns_ = 0;        // nothing new is sent before

  // Rule 7: after a HELD only the oldest packet asks, with back-off, until another answer comes.
  bool is_waiting_for_others_ = false;
  uint64_t keep_alive_ns_ = 0;
  unsigned keep_alive_shift_ = 0;

  // For the message of a timeout.
  mlnet_notice last_notice_{};
};

}  // namespace mlnet::worker
