// SPDX-License-Identifier: Apache-2.0
// One stream of a traffic class in one tree: its seq space, the collectives in it, and their packets on the way.
// The fix-up stream is a second lane, which is given repairs in the order of the collectives.
// Why: classes never wait for each other, so each has a pool, a window, timers and an order of its own.
// Rule 2: seq s is sent only after the result of s - P was copied out, and the result that carries the
// exponents of s. Results are copied out as they come, in any order; collectives end in any order.
// Not here: bytes (packetize.h), growth of the window (send_window.h), timer arithmetic (retransmit.h).
#pragma once

#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "collective.h"
#include "config.h"
#include "control_sink.h"
#include "counters.h"
#include "flight_table.h"
#include "packetize.h"
#include "retransmit.h"
#include "send_batch.h"
#include "send_window.h"

namespace mlnet::worker {

inline constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

/// What the lanes of an engine share; it outlives them.
struct LaneContext {
  const EngineConfig& config;
  Transport& transport;
  SendBatch& batch;
  Counters& counters;
  ControlSink& control;
};

class Lane {
 public:
  /// `tree`: index into the job's trees. `repairs`: the lane of the fix-up stream; null for that stream itself.
  Lane(const LaneContext& context, size_t tree, int traffic_class, Lane* repairs);

  /// Gives a part of a call its place in the order. Called in the same order on all ranks.
  void Enqueue(const CollectiveSpec& part, std::shared_ptr<Call> call);
  /// Consumes results and runs the timers. True when something came in.
  bool Receive(uint64_t now_ns);
  /// Sends at most `budget` new packets; returns how many.
  uint32_t Send(uint64_t now_ns, uint32_t budget);
  void OnNotice(const mlnet_notice& notice, uint64_t now_ns);
  void SetRtoBounds(uint64_t min_ns, uint64_t max_ns) { rtt_.SetBounds(min_ns, max_ns); }
  /// `window`: this lane's part of the grant's.
  void SetGrant(const Grant& grant, uint32_t window, uint64_t now_ns);

  bool IsIdle() const { return active_.empty(); }
  /// When Receive must be called again though nothing comes in.
  uint64_t NextEventNs() const;
  /// Why the lane cannot go on: a deadline, or a result that does not fit. nullopt while all is well.
  std::optional<Error> FindFailure(uint64_t now_ns);
  void FailAll(const Error& error);
  /// REQUIRES: not idle.
  void DescribeOldest() { Describe(*active_.front()->call); }
  uint64_t srtt_ns() const { return rtt_.srtt_ns(); }

 private:
  enum class Readiness { kReady, kNotReady, kSlotTaken };

  Readiness ReadinessOf(const Collective& collective) const;
  bool HasRoomFor(const Collective& collective) const;
  uint64_t TimeoutOf(const Collective& collective) const;
  void SendFirst(Collective& collective, uint64_t now_ns);
  void Resend(Flight& flight, uint64_t now_ns);
  void Build(const Collective& collective, uint64_t packet, bool is_retry);
  const mlnet_cell& CellOf(uint64_t seq) const;
  bool IsPublished(uint64_t seq) const;

  void Consume(Flight& flight, uint64_t now_ns);
  bool Fits(const mlnet_cell& cell, const Collective& collective, uint64_t packet);
  void OnAnswer(Flight& flight, uint64_t now_ns);
  void Count(const Collective& collective);
  void Finish(Collective& collective);
  void Place(std::shared_ptr<Collective> collective);
  void Repair(const std::shared_ptr<Collective>& collective);

  void RunTimers(Flight& flight, uint64_t now_ns);
  void RunKeepAlive(Flight& flight, uint64_t now_ns);
  void AskWithOldest(uint64_t now_ns);
  void AskAfterSilence(uint64_t now_ns);
  bool IsOvertakenNow(const Flight& flight, uint64_t now_ns);
  void OnHeld(Flight& flight, uint64_t now_ns);
  void WakeAt(uint64_t at_ns) { next_timer_ns_ = std::min(next_timer_ns_, at_ns); }
  void Describe(Call& call);
  Error TimeoutError(const Collective& collective) const;
  std::string WhoIsMissing() const;

  const LaneContext context_;
  const TreeConfig& tree_;
  const PoolConfig pool_;
  const size_t flow_;
  const int traffic_class_;
  const Packetizer packetizer_;
  Lane* const repairs_;

  std::deque<std::shared_ptr<Collective>> active_;  // in order; the first is not answered
  std::deque<Collective*> unsent_;                  // those with packets left to send, in order
  std::vector<uint64_t> next_of_slot_;              // the seq each slot takes next
  uint64_t next_seq_;                               // of the next collective
  uint64_t oldest_;                                 // lowest seq whose result is not consumed
  uint64_t next_deadline_ns_ = kNever;

  FlightTable flights_;
  const uint32_t window_most_;
  SendWindow window_;
  RttEstimator rtt_;
  Overtaken overtaken_;
  RetryGate gate_;
  uint64_t next_timer_ns_ = kNever;
  uint64_t rearmed_ns_ = 0;  // no timer runs out before
  uint64_t last_answer_ns_ = 0;
  bool has_asked_ = false;      // since the last answer, because of silence
  bool has_timed_out_ = false;  // in this scan: the oldest packet is to ask

  // While jobs meet.
  Grant grant_;
  uint64_t opens_ns_ = 0;        // nothing new is sent before
  bool is_kept_waiting_ = false;
  uint64_t kept_since_ns_ = 0;

  // Rule 7: after a HELD only the oldest packet asks, with back-off, until another answer comes.
  bool is_waiting_for_others_ = false;
  uint64_t keep_alive_ns_ = 0;
  unsigned keep_alive_shift_ = 0;

  // For the message of a timeout.
  mlnet_notice last_notice_{};
  std::optional<Error> failure_;
};

}  // namespace mlnet::worker
