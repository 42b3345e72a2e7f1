// SPDX-License-Identifier: Apache-2.0
// The lane's order: enqueue, send, fail. What comes back is in lane_receive.cc.
#include "lane.h"

#include <algorithm>
#include <bit>

#include "ring/ring_router.h"

namespace mlnet::worker {
namespace {

constexpr uint64_t kGrantSpreadNs = 500'000'000;  // all ranks have heard of a grant by then

}  // namespace

Lane::Lane(const LaneContext& context, size_t tree, int traffic_class, Lane* repairs)
    : LaneBase(context, tree, traffic_class, repairs),
      packetizer_(context.config, tree_),
      next_of_slot_(pool_.slots()),
      flights_(pool_.slots()),
      // Half of the pool stays free for what is repaired: s + P waits for s, and a repair takes two round
      // trips.
      window_most_(std::max(1U, pool_.slots() / 2)),
      window_(context.config.window_first, window_most_, pool_.slots(), context.config.world_size),
      rtt_(context.config.rto_min_ns, context.config.rto_max_ns) {
  for (uint64_t i = 0; i < pool_.slots(); ++i) {
    next_of_slot_[flights_.IndexOf(pool_.first_seq + i)] = pool_.first_seq + i;
  }
}

Lane::Readiness Lane::ReadinessOf(const Collective& collective) const {
  const uint64_t seq = collective.first_seq + collective.next;
  if (next_of_slot_[flights_.IndexOf(seq)] != seq) return Readiness::kSlotTaken;
  return collective.traffic->IsReady(collective.next) ? Readiness::kReady : Readiness::kNotReady;
}

bool Lane::HasRoomFor(const Collective& collective) const {
  if (flights_.size() < window_.size()) return true;
  // The first collective always has a packet on its way, or ranks whose windows are full of different
  // collectives would wait for each other.
  return &collective == active_.front().get() && collective.in_flight == 0;
}

void Lane::SetGrant(const Grant& grant, uint32_t window, uint64_t now_ns) {
  window_.SetLimit(grant.window == 0 ? pool_.slots() : std::min(window_most_, window));
  if (grant != grant_) window_.IgnoreLateUntil(now_ns + kGrantSpreadNs);
  grant_ = grant;
  if (grant.gap_ns == 0) opens_ns_ = 0;
  KeepWaiting(grant.waits, now_ns);
}

uint32_t Lane::Send(uint64_t now_ns, uint32_t budget) {
  if (now_ns < opens_ns_) {
    WakeAt(opens_ns_);
    return 0;
  }
  uint32_t sent = 0;
  for (size_t i = 0; i < unsent_.size();) {
    Collective& collective = *unsent_[i];
    Readiness readiness = Readiness::kReady;
    while (!collective.IsSent() && sent < budget) {
      if (!HasRoomFor(collective)) return sent;
      readiness = ReadinessOf(collective);
      if (readiness != Readiness::kReady) break;
      SendFirst(collective, now_ns);
      ++sent;
    }
    if (collective.IsSent()) {
      if (aged_ == &collective) aged_ = nullptr;
      unsent_.erase(unsent_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    if (sent == budget || readiness == Readiness::kSlotTaken) return sent;
    ++i;  // waits for its probes: the next collective may send its own meanwhile
  }
  return sent;
}

bool Lane::Presses(uint64_t now_ns) {
  constexpr uint64_t kRoundTrips = 2;  // without an answer: it waits for a rank, not for room
  if (unsent_.empty() || now_ns < opens_ns_) return false;
  const uint64_t until_ns = last_answer_ns_ + kRoundTrips * rtt_.srtt_ns();
  if (now_ns >= until_ns) return false;
  WakeAt(until_ns);
  return true;
}

bool Lane::HasAged(uint64_t now_ns) {
  constexpr uint64_t kShareOfTimeout = 4;  // leaves it the most of its time at half of the rate
  if (unsent_.empty() || unsent_.front() == aged_) return !unsent_.empty();
  const Collective& next = *unsent_.front();
  const uint64_t at_ns = std::max(next.call->called_ns, next.sent_last_ns) + TimeoutOf(next) / kShareOfTimeout;
  if (now_ns < at_ns) {
    WakeAt(at_ns);
    return false;
  }
  aged_ = &next;
  return true;
}

void Lane::SendFirst(Collective& collective, uint64_t now_ns) {
  const uint64_t packet = collective.next++;
  if (packet == 0) collective.sent_first_ns = now_ns;
  collective.sent_last_ns = now_ns;
  Build(collective, packet, false);
  Flight& flight = flights_.Add(collective.first_seq + packet, now_ns);
  flight.collective = &collective;
  flight.packet = packet;
  flight.due_ns = now_ns + rtt_.rto_ns();
  WakeAt(flight.due_ns);
  ++collective.in_flight;
  context_.counters.packets_sent.Add();
  if (collective.traffic->IsProbe(packet)) context_.counters.probes.Add();
}

void Lane::Build(const Collective& collective, uint64_t packet, bool is_retry) {
  const size_t bytes = packetizer_.Bytes(collective, packet, is_retry);
  packetizer_.Build(collective, stream(), packet, is_retry, context_.batch.Take(flow_, bytes));
}

void Lane::Resend(Flight& flight, uint64_t now_ns) {
  const Collective& collective = *flight.collective;
  Build(collective, flight.packet, true);
  flights_.Touch(flight, now_ns);
  flight.is_busy = false;
  flight.due_ns = now_ns + rtt_.rto_ns();
  context_.counters.retransmits.Add();
}

Held Lane::HeldResults() const {
  Held held = HeldFrom(oldest_, pool_.slots());
  for (uint64_t seq = oldest_; seq < oldest_ + pool_.slots(); ++seq) {
    if (next_of_slot_[flights_.IndexOf(seq)] > seq) held.Add(seq);
  }
  return held;
}

void Lane::Resume(const Settled& settled) {
  next_timer_ns_ = kNever;
  for (uint32_t i = flights_.first(); i != FlightTable::kNone; i = flights_.at(i).next) {
    Flight& flight = flights_.at(i);
    ++flight.transmissions;  // the pause is no measure of the path
    if (settled.HolderOf(flight.seq) == kSummedAgain) Build(*flight.collective, flight.packet, true);
  }
}

uint64_t Lane::NextEventNs() const { return std::min(next_timer_ns_, next_deadline_ns_); }

void Lane::FailAll(const Error& error) {
  LaneBase::FailAll(error);
  unsent_.clear();
  aged_ = nullptr;
  flights_.Clear();
  next_timer_ns_ = kNever;
}

// The bits are children of the node that answered, each with one or more ranks behind it.
std::string Lane::WhoIsMissing() const {
  const auto& children = last_notice_.child == MLNET_CHILD_ALL ? tree_.above : tree_.children;
  std::vector<int> ranks;
  for (uint64_t left = last_notice_.bitmap; left != 0; left &= left - 1) {
    const auto child = static_cast<size_t>(std::countr_zero(left));
    if (child < children.size()) ranks.insert(ranks.end(), children[child].begin(), children[child].end());
    else ranks.push_back(static_cast<int>(child));
  }
  std::sort(ranks.begin(), ranks.end());
  std::string names;
  for (const int rank : ranks) names += (names.empty() ? "" : ", ") + std::to_string(rank);
  return (ranks.size() == 1 ? "rank " : "ranks ") + names;
}

Error Lane::RingTimeoutError(const Collective& collective) const {
  const auto missing = context_.transport.ring()->WhoIsMissing(tree_.tree, MLNET_CLASS_STREAM(traffic_class_, stream()), oldest_);
  return {ErrorCode::kTimeout,
          TimeoutText(collective) + (missing ? "waiting in the ring for rank " + std::to_string(*missing) : "the ring of ranks got no further"),
          "are all ranks alive, and do they call the same collectives in the same order"};
}

Error Lane::TimeoutError(const Collective& collective) const {
  if (context_.transport.ring() != nullptr) return RingTimeoutError(collective);
  const std::string what = TimeoutText(collective);
  const std::string& aggregator = tree_.aggregator;
  const bool is_about_oldest = last_notice_.type != 0 && last_notice_.seq == (oldest_ & MLNET_SEQ_MASK);
  if (is_about_oldest && last_notice_.type == MLNET_T_HELD && last_notice_.bitmap != 0) {
    return {ErrorCode::kTimeout, what + "waiting for " + WhoIsMissing(),
            "are they alive, and do they call the same collectives in the same order"};
  }
  if (is_about_oldest && last_notice_.type == MLNET_T_HELD && IsServed(collective.call->spec.kind)) {
    return {ErrorCode::kTimeout, what + "the contributions are in, but the job's server did not answer",
            "is it alive, and does it call the same pushes and pulls in the same order"};
  }
  if (is_about_oldest && last_notice_.type == MLNET_T_HELD) {
    return {ErrorCode::kTimeout,
            what + "all ranks below the node at " + aggregator + " are in, but no answer came from the one above it",
            "mlnetctl job show names the aggregators; mlnetctl status on their hosts"};
  }
  if (is_about_oldest && last_notice_.type == MLNET_T_RESEND) {
    return {ErrorCode::kTimeout, what + "the rank with the data did not send it again",
            "the aggregator at " + aggregator + " has all contributions but no room for the sum"};
  }
  if (is_about_oldest) {
    return {ErrorCode::kTimeout,
            what + "the aggregator at " + aggregator + " refuses packet " + std::to_string(oldest_) + " (" +
                (last_notice_.type == MLNET_T_BUSY ? "BUSY" : "MISMATCH") + ")",
            "mlnetctl stats on its host shows why"};
  }
  const auto& send_error = context_.batch.last_error();
  const std::string who = tree_.above.empty() ? "the aggregator at " + aggregator + " did not answer"
                                              : "neither the node at " + aggregator + " nor the one above it answered";
  return {ErrorCode::kTimeout,
          what + who +
              (send_error ? "; sending failed: " + send_error->message : std::string()),
          "mlnetctl status there; is mlnet attached to its NIC"};
}

}  // namespace mlnet::worker
