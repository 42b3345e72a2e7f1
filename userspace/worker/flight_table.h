// SPDX-License-Identifier: Apache-2.0
// The packets of one class that are on their way, one entry a slot, linked in the order of sending.
// Why: answers, timers and early resends all look at the oldest transmissions first.
// Invariants: (1) a slot holds one packet; (2) the list is ordered by `order`, which is never reused.
#pragma once

#include <cstdint>
#include <vector>

#include "collective.h"

namespace mlnet::worker {

struct Flight {
  uint64_t seq = 0;
  uint64_t order = 0;  // number of the newest transmission
  uint64_t sent_ns = 0;
  uint64_t due_ns = 0;  // when its timer runs out
  Collective* collective = nullptr;
  uint64_t packet = 0;
  uint32_t transmissions = 0;
  bool is_active = false;
  bool is_held = false;  // the aggregator has it and waits for others
  bool is_busy = false;  // the aggregator could not take it: due_ns is when to try again
  uint32_t previous = 0;
  uint32_t next = 0;
};

class FlightTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit FlightTable(uint32_t slots) : mask_(slots - 1), flights_(slots) {}

  uint32_t size() const { return size_; }
  uint32_t first() const { return head_; }
  Flight& at(uint32_t index) { return flights_[index]; }
  uint32_t IndexOf(uint64_t seq) const { return static_cast<uint32_t>(seq) & mask_; }
  /// The entry of `seq` while it is on its way, else null.
  Flight* Find(uint64_t seq) {
    Flight& flight = flights_[IndexOf(seq)];
    return flight.is_active && flight.seq == seq ? &flight : nullptr;
  }

  /// REQUIRES: the slot is free.
  Flight& Add(uint64_t seq, uint64_t now_ns) {
    const uint32_t index = IndexOf(seq);
    Flight& flight = flights_[index];
    flight = Flight{};
    flight.seq = seq;
    flight.is_active = true;
    ++size_;
    Append(index, now_ns);
    return flight;
  }
  void Remove(Flight& flight) {
    Unlink(flight);
    flight.is_active = false;
    --size_;
  }
  /// Sent once more: the entry becomes the newest.
  void Touch(Flight& flight, uint64_t now_ns) {
    Unlink(flight);
    Append(IndexOf(flight.seq), now_ns);
  }
  void Clear() {
    for (Flight& flight : flights_) flight.is_active = false;
    head_ = tail_ = kNone;
    size_ = 0;
  }

 private:
  void Append(uint32_t index, uint64_t now_ns) {
    Flight& flight = flights_[index];
    flight.order = ++last_order_;
    flight.sent_ns = now_ns;
    ++flight.transmissions;
    flight.previous = tail_;
    flight.next = kNone;
    (tail_ == kNone ? head_ : flights_[tail_].next) = index;
    tail_ = index;
  }
  void Unlink(const Flight& flight) {
    (flight.previous == kNone ? head_ : flights_[flight.previous].next) = flight.next;
    (flight.next == kNone ? tail_ : flights_[flight.next].previous) = flight.previous;
  }

  uint32_t mask_;
  std::vector<Flight> flights_;
  uint32_t head_ = kNone;
  uint32_t tail_ = kNone;
  uint32_t size_ = 0;
  uint64_t last_order_ = 0;
};

}  // namespace mlnet::worker
