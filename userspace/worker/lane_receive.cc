// SPDX-License-Identifier: Apache-2.0
// What comes back to a lane: results, notices, and the passing of time.
#include "lane.h"
#include "ring/ring_router.h"
#include "wire/packet.h"

namespace mlnet::worker {
namespace {

constexpr uint64_t kHeldRoundTrips = 4;
constexpr uint64_t kReorderShare = 4;  // of a round trip
constexpr uint64_t kLateRoundTrips = 2;

}  // namespace

bool Lane::Receive(uint64_t now_ns) {
  const bool has_ring = context_.transport.ring() != nullptr;  // loses nothing, so nothing is asked for
  bool has_progress = false;
  next_timer_ns_ = kNever;
  for (uint32_t i = flights_.first(); i != FlightTable::kNone && !failure_;) {
    Flight& flight = flights_.at(i);
    i = flight.next;
    if (IsPublished(flight.seq)) {
      Consume(flight, now_ns);
      has_progress = true;
    } else if (!has_ring) {
      RunTimers(flight, now_ns);
    }
  }
  if (has_timed_out_) AskWithOldest(now_ns);
  if (!has_ring && !has_asked_ && !is_waiting_for_others_) AskAfterSilence(now_ns);
  RetireAnswered();
  return has_progress;
}

void Lane::Consume(Flight& flight, uint64_t now_ns) {
  Collective& collective = *flight.collective;
  const mlnet_cell& cell = CellOf(flight.seq);
  const uint64_t seq = flight.seq;
  if (!Fits(cell, collective, flight.packet)) return;
  if ((cell.flags & MLNET_F_NO_DATA) != 0) collective.traffic->TakeReceipt(flight.packet, cell);
  else collective.traffic->Take(flight.packet, cell);
  Count(collective, seq);
  if ((cell.flags & MLNET_F_CE) != 0) OnMark(now_ns);
  OnAnswer(flight, now_ns);
  flights_.Remove(flight);
  --collective.in_flight;
  next_of_slot_[flights_.IndexOf(seq)] = seq + pool_.slots();
  while (oldest_ < next_seq_ && next_of_slot_[flights_.IndexOf(oldest_)] > oldest_) ++oldest_;
  ++collective.answered;
  if (!collective.IsAnswered()) return;
  if (context_.recorder.IsOn()) Record(collective, cell.time_ns, now_ns);
  Finish(collective);
}

void Lane::Record(const Collective& collective, uint64_t received_ns, uint64_t now_ns) {
  context_.recorder.Add({collective.Describe(), tree_.tree, static_cast<uint8_t>(traffic_class_), stream(), collective.first_seq,
                         collective.traffic->packets(), collective.bytes_per_packet * collective.traffic->packets(),
                         collective.call->called_ns, collective.sent_first_ns, collective.sent_last_ns, received_ns, now_ns});
}

// The slot engine compares these before it adds; a difference here means that a rule was broken.
bool Lane::Fits(const mlnet_cell& cell, const Collective& collective, uint64_t packet) {
  if (cell.fingerprint == collective.fingerprint && cell.words == collective.traffic->ShapeOf(packet).words) {
    return true;
  }
  failure_ = Error{ErrorCode::kProtocol,
                   "the result of packet " + std::to_string(packet) + " of " + collective.Describe() +
                       " belongs to another collective",
                   "all hosts must run the same mlnet version"};
  return false;
}

void Lane::Count(const Collective& collective, uint64_t seq) {
  Counters& counters = context_.counters;
  counters.results.Add();
  counters.bytes.Add(collective.bytes_per_packet);
  if (collective.parent) counters.repairs.Add();
  const RingRouter* ring = context_.transport.ring();
  const bool is_ring_sum = ring != nullptr && !ring->WasSummedBefore(tree_.tree, MLNET_CLASS_STREAM(traffic_class_, stream()), seq);
  if (is_ring_sum) counters.summed_in_ring.Add();
  (is_ring_sum || collective.traffic->IsSummedByRanks() ? counters.summed_in_user_space : counters.summed_in_kernel).Add();
}

void Lane::OnAnswer(Flight& flight, uint64_t now_ns) {
  Counters& counters = context_.counters;
  if (flight.transmissions == 1) {
    // One that was overtaken waited for a rank that had lost its own: no measure of the path. Nor, most likely, was one on whose way the
    // timer ran out: each rank would wait for the others' timers, and take that for the path.
    if (flight.sent_ns < timed_out_ns_) rtt_.Wait(now_ns - flight.sent_ns);
    else if (!overtaken_.IsOvertaken(flight.order)) rtt_.Sample(now_ns - flight.sent_ns);
    counters.rtt_us.Set(rtt_.srtt_ns() / 1000);
    // Answers to retries say nothing: other ranks need not have sent what lies between.
    overtaken_.OnAnswer(flight.order);
  }
  window_.OnAnswer(now_ns, rtt_.srtt_ns(), rtt_.queued_ns(), flights_.size());
  gate_.OnAnswer();
  last_answer_ns_ = now_ns;
  if (grant_.gap_ns != 0) opens_ns_ = now_ns + grant_.gap_ns;
  has_asked_ = false;
  is_waiting_for_others_ = false;
  // While first transmissions are answered, what is missing shows by being overtaken. An answer to a retry overtakes nothing: what was
  // only late comes right behind it, and the rest is to be repaired now, or a burst that a queue has dropped costs a timeout a packet.
  const uint64_t grace_ns = flight.transmissions == 1 ? rtt_.rto_ns() : std::min(rtt_.rto_ns(), kLateRoundTrips * rtt_.path_ns() + context_.config.rto_min_ns);
  rearmed_ns_ = now_ns + grace_ns;
}

void Lane::OnMark(uint64_t now_ns) {
  window_.OnMark(now_ns, rtt_.srtt_ns());
  context_.counters.marked.Add();
}

bool Lane::IsOvertakenNow(const Flight& flight, uint64_t now_ns) {
  if (flight.is_busy || !overtaken_.IsOvertaken(flight.order)) return false;
  // Once a round trip and some tolerance for reordering; where the aggregator said that others are
  // missing, it is most likely still so.
  const uint64_t wait_ns = rtt_.path_ns() + rtt_.path_ns() / kReorderShare;
  const uint64_t at_ns = flight.sent_ns + wait_ns * (flight.is_held ? kHeldRoundTrips : 1);
  if (now_ns >= at_ns) return true;
  WakeAt(at_ns);
  return false;
}

// Later ones are answered already, or one that had timed out with it. Not what is asked for while all is silent: that is late as all
// others are, and waits for a rank or a processor.
void Lane::OnMissing(const Flight& flight, uint64_t now_ns, bool is_late) {
  if (flight.is_busy || flight.transmissions != 1) return;
  window_.OnLoss(now_ns, rtt_.srtt_ns(), flight.sent_ns, is_late);
  rtt_.OnLoss();
}

void Lane::RunTimers(Flight& flight, uint64_t now_ns) {
  // What was overtaken is missing whoever else is waited for: where a rank is late, nothing overtakes.
  if (is_waiting_for_others_ && !flight.is_busy && (flight.is_held || !overtaken_.IsOvertaken(flight.order))) {
    RunKeepAlive(flight, now_ns);
    return;
  }
  const uint64_t due_ns = flight.is_busy ? flight.due_ns : std::max(flight.due_ns, rearmed_ns_);
  if (IsOvertakenNow(flight, now_ns)) {
    context_.counters.early_resends.Add();
    OnMissing(flight, now_ns, false);
    Resend(flight, now_ns);
    WakeAt(flight.due_ns);
  } else if (now_ns < due_ns) {
    WakeAt(due_ns);
  } else if (flight.is_busy || (!gate_.IsOpen(now_ns) && gate_.TakeToken())) {
    OnMissing(flight, now_ns, true);
    Resend(flight, now_ns);
    WakeAt(flight.due_ns);
  } else if (gate_.IsOpen(now_ns)) {
    has_timed_out_ = true;
  } else {
    WakeAt(gate_.opens_ns());
  }
}

// After a timeout every rank asks with its lowest unanswered packet, so that all ask for the same sum.
void Lane::AskWithOldest(uint64_t now_ns) {
  has_timed_out_ = false;
  timed_out_ns_ = now_ns;
  rtt_.BackOff();
  gate_.CloseUntil(now_ns + rtt_.rto_ns());
  if (Flight* oldest = flights_.Find(oldest_)) Resend(*oldest, now_ns);
  WakeAt(gate_.opens_ns());
}

// The last packets of a burst have none behind them that could overtake them.
void Lane::AskAfterSilence(uint64_t now_ns) {
  Flight* oldest = flights_.Find(oldest_);
  if (oldest == nullptr) return;
  const uint64_t at_ns = std::max(oldest->sent_ns, last_answer_ns_) + rtt_.probe_ns();
  if (now_ns < at_ns) {
    WakeAt(at_ns);
    return;
  }
  has_asked_ = true;
  Resend(*oldest, now_ns);
}

void Lane::RunKeepAlive(Flight& flight, uint64_t now_ns) {
  if (flight.seq != oldest_) return;
  if (now_ns >= keep_alive_ns_) {
    Resend(flight, now_ns);
    keep_alive_ns_ = now_ns + rtt_.rto_ns(++keep_alive_shift_);
  }
  WakeAt(keep_alive_ns_);
}

void Lane::OnNotice(const mlnet_notice& notice, uint64_t now_ns) {
  // The notice has 48 bits of seq; what is on its way lies within one pool of oldest_.
  const uint64_t ahead = (notice.seq - oldest_) & MLNET_SEQ_MASK;
  Flight* flight = flights_.Find(oldest_ + ahead);
  if (flight == nullptr) return;  // answered meanwhile
  if (IsPublished(flight->seq)) return;
  if (notice.type != MLNET_T_HELD || notice.seq == (oldest_ & MLNET_SEQ_MASK)) last_notice_ = notice;
  switch (notice.type) {
    case MLNET_T_HELD:
      OnHeld(*flight, now_ns);
      return;
    case MLNET_T_BUSY:
      context_.counters.busy.Add();
      flight->is_busy = true;
      flight->due_ns = now_ns + rtt_.srtt_ns();
      WakeAt(flight->due_ns);
      return;
    case MLNET_T_RESEND:
      is_waiting_for_others_ = false;
      rearmed_ns_ = now_ns + rtt_.rto_ns();
      Resend(*flight, now_ns);
      WakeAt(flight->due_ns);
      return;
    case MLNET_T_MISMATCH:
      Describe(*flight->collective->call);
      return;
    default:
      return;
  }
}

void Lane::OnHeld(Flight& flight, uint64_t now_ns) {
  context_.counters.held.Add();
  // Only a packet that was sent again is answered so; after one retry it is clear which one was meant.
  if (flight.transmissions == 2) rtt_.Sample(now_ns - flight.sent_ns);
  flight.is_held = true;
  if (!is_waiting_for_others_) {
    is_waiting_for_others_ = true;
    keep_alive_shift_ = 0;
    keep_alive_ns_ = now_ns + rtt_.rto_ns(0);
  }
  WakeAt(keep_alive_ns_);
}

}  // namespace mlnet::worker
