// SPDX-License-Identifier: Apache-2.0
#include "sim/network.h"

#include <algorithm>

namespace mlnet::sim {
namespace {

constexpr uint64_t kEthernetBytes = 14;  // a real link's frame checksum covers what we do not
constexpr uint64_t kReorderRoundTrips = 4;

}  // namespace

bool Network::Happens(double probability) {
  return probability > 0 && std::uniform_real_distribution<>(0, 1)(random_) < probability;
}

// False: it is full.
bool Network::Queue(uint64_t now_ns, PortState& state, test::Bytes& frame) {
  const uint64_t backlog_ns = state.empty_at_ns > now_ns ? state.empty_at_ns - now_ns : 0;
  const uint64_t backlog = backlog_ns / state.port.ns_per_byte;
  if (backlog + frame.size() > state.port.queue_bytes) {
    ++traffic_.overflowed;
    return false;
  }
  if (backlog >= state.port.mark_bytes && test::MarkCongestion(frame)) ++traffic_.marked;
  state.empty_at_ns = now_ns + backlog_ns + frame.size() * state.port.ns_per_byte;
  return true;
}

Arrival& Network::Push(uint64_t now_ns, int from_host, int to_host, std::span<const uint8_t> frame) {
  uint64_t at_ns = now_ns + faults_.delay_ns;
  if (faults_.jitter_ns > 0) at_ns += random_() % faults_.jitter_ns;
  if (Happens(faults_.reorder)) {
    at_ns += random_() % (2 * kReorderRoundTrips * faults_.delay_ns);
    ++traffic_.reordered;
  } else {
    uint64_t& last_ns = last_at_ns_[{from_host, to_host}];
    at_ns = last_ns = std::max(at_ns, last_ns + frame.size() * faults_.ns_per_byte);
  }
  if (free_.empty()) free_.push_back(&arrivals_.emplace_back());
  Arrival& arrival = *free_.back();
  free_.pop_back();
  arrival.host = to_host;
  arrival.frame.assign(frame.begin(), frame.end());
  queue_.push({at_ns, next_order_++, &arrival});
  return arrival;
}

void Network::Send(uint64_t now_ns, int from_host, int to_host, std::span<const uint8_t> frame) {
  ++traffic_.frames;
  if (cut_.contains(to_host) || Happens(faults_.drop)) {
    ++traffic_.dropped;
    return;
  }
  const auto port = ports_.find(to_host);
  if (port != ports_.end()) {
    queued_.assign(frame.begin(), frame.end());
    if (!Queue(now_ns, port->second, queued_)) return;
    frame = queued_;
    now_ns = port->second.empty_at_ns;
  }
  if (Happens(faults_.duplicate)) {
    ++traffic_.duplicated;
    Push(now_ns, from_host, to_host, frame);
  }
  test::Bytes& sent = Push(now_ns, from_host, to_host, frame).frame;
  if (tap_) tap_(to_host, sent);
  if (Happens(faults_.corrupt)) {
    ++traffic_.corrupted;
    const uint64_t bit = random_() % ((sent.size() - kEthernetBytes) * 8);
    sent[kEthernetBytes + bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
  }
  if (Happens(faults_.truncate)) {
    ++traffic_.truncated;
    sent.resize(kEthernetBytes + random_() % (sent.size() - kEthernetBytes));
  }
}

const Arrival& Network::Take() {
  if (taken_ != nullptr) free_.push_back(taken_);
  taken_ = queue_.top().arrival;
  queue_.pop();
  return *taken_;
}

}  // namespace mlnet::sim
