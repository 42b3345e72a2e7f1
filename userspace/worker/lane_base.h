// SPDX-License-Identifier: Apache-2.0
// What the two ends of a stream share: the collectives in it, in order, and the cells of its pool.
//   lane.h         a rank: contributes, takes results
//   server_lane.h  the job's server: takes sums, answers
// Why: both must number packets and repairs in the same way, or they would not meet.
#pragma once

#include <deque>
#include <limits>
#include <memory>
#include <optional>

#include "collective.h"
#include "config.h"
#include "control_sink.h"
#include "counters.h"
#include "recorder.h"
#include "ring/agreement.h"
#include "send_batch.h"

namespace mlnet::worker {

inline constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

/// What the lanes of an engine share; it outlives them.
struct LaneContext {
  const EngineConfig& config;
  Transport& transport;
  SendBatch& batch;
  Counters& counters;
  ControlSink& control;
  Recorder& recorder;
};

class LaneBase {
 public:
  virtual ~LaneBase() = default;

  /// Gives a part of a call its place in the order. Called in the same order on all ranks and on the server.
  void Enqueue(const CollectiveSpec& part, std::shared_ptr<Call> call);
  /// Consumes what lies in the inbox and runs the timers. True when something came in.
  virtual bool Receive(uint64_t now_ns) = 0;
  /// Sends at most `budget` new packets; returns how many.
  virtual uint32_t Send(uint64_t now_ns, uint32_t budget) = 0;
  /// Has more to send as soon as answers make room for it, and they come: lower classes do not send meanwhile.
  virtual bool Presses(uint64_t) { return false; }
  /// Has sent nothing new for so long, because higher classes press, that it goes on with its next collective all the same.
  virtual bool HasAged(uint64_t) { return true; }
  virtual void OnNotice(const mlnet_notice& notice, uint64_t now_ns) = 0;
  virtual void SetRtoBounds(uint64_t min_ns, uint64_t max_ns) = 0;
  /// `window`: this lane's part of the grant's.
  virtual void SetGrant(const Grant& grant, uint32_t window, uint64_t now_ns) = 0;

  /// Which results this end has. REQUIRES: none comes in any more.
  virtual Held HeldResults() const { return HeldFrom(oldest_, pool_.slots()); }
  /// The ring has taken over: whatever is on its way and nobody's result is sent again.
  virtual void Resume(const Settled&) {}

  bool IsIdle() const { return active_.empty(); }
  /// When Receive must be called again though nothing comes in.
  virtual uint64_t NextEventNs() const { return next_deadline_ns_; }
  /// Why the lane cannot go on: a deadline, or a result that does not fit. nullopt while all is well.
  std::optional<Error> FindFailure(uint64_t now_ns);
  virtual void FailAll(const Error& error);
  /// REQUIRES: not idle.
  void DescribeOldest() { Describe(*active_.front()->call); }

 protected:
  /// `repairs`: the lane of the fix-up stream; null for that stream itself.
  LaneBase(const LaneContext& context, size_t tree, int traffic_class, LaneBase* repairs);

  uint8_t stream() const { return repairs_ == nullptr ? 1 : 0; }
  size_t IndexOf(uint64_t seq) const { return static_cast<size_t>(seq & (pool_.slots() - 1)); }
  const mlnet_cell& CellOf(uint64_t seq) const;
  bool IsPublished(uint64_t seq) const;
  /// The last packet of `collective` is done.
  void Finish(Collective& collective);
  /// Hands collectives that are done to the fix-up stream, in their order, whatever order they ended in.
  void RetireAnswered();
  void Describe(Call& call);
  virtual void OnPlaced(Collective&) {}
  virtual Error TimeoutError(const Collective& collective) const = 0;
  /// Another job goes first: deadlines stand still as long as answers come at all.
  void KeepWaiting(bool waits, uint64_t now_ns);
  uint64_t TimeoutOf(const Collective& collective) const;
  /// "all_reduce #12 float32 ... not done within its timeout of 5000 ms: ".
  std::string TimeoutText(const Collective& collective) const;

  const LaneContext context_;
  const TreeConfig& tree_;
  const PoolConfig pool_;
  const size_t flow_;
  const int traffic_class_;
  LaneBase* const repairs_;

  std::deque<std::shared_ptr<Collective>> active_;  // in order; the first is not answered
  uint64_t next_seq_;                               // of the next collective
  uint64_t oldest_;                                 // lowest seq that is not done
  uint64_t next_deadline_ns_ = kNever;
  uint64_t last_answer_ns_ = 0;  // the newest sign of life
  std::optional<Error> failure_;

 private:
  void Place(std::shared_ptr<Collective> collective);
  void Repair(const std::shared_ptr<Collective>& collective);
  uint64_t DeadlineOf(const Collective& collective) const;

  bool is_kept_waiting_ = false;
  uint64_t kept_since_ns_ = 0;
};

}  // namespace mlnet::worker
