// SPDX-License-Identifier: Apache-2.0
// The wire between simulated hosts: virtual time, and seeded faults on every hop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "harness/frame.h"

namespace mlnet::sim {

/// Probabilities per frame and hop; speed of a hop.
struct Faults {
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;  // held back by some round trips
  double corrupt = 0;  // one bit behind the Ethernet header flips
  double truncate = 0;
  uint64_t delay_ns = 20'000;
  uint64_t ns_per_byte = 0;    // 8: 1 Gb/s
  uint64_t jitter_ns = 5'000;  // keeps the order of frames between the same two hosts
};

/// The queue of a switch in front of a host's port, which all who send to that host share.
struct Port {
  uint64_t ns_per_byte = 0;  // 0: there is none
  uint64_t queue_bytes = 0;  // what it holds; the rest is dropped
  uint64_t mark_bytes = UINT64_MAX;  // from here on it marks what can be marked (RFC 3168)
};

struct Arrival {
  int host = 0;
  test::Bytes frame;
};

struct Traffic {
  uint64_t frames = 0, dropped = 0, duplicated = 0, reordered = 0, corrupted = 0, truncated = 0;
  uint64_t overflowed = 0, marked = 0;  // by ports
};

class Network {
 public:
  Network(const Faults& faults, uint64_t seed) : faults_(faults), random_(seed) {}

  void Send(uint64_t now_ns, int from_host, int to_host, std::span<const uint8_t> frame);
  bool IsEmpty() const { return queue_.empty(); }
  uint64_t NextNs() const { return queue_.top().at_ns; }
  /// What arrives next; valid until the next call of Take.
  const Arrival& Take();
  Faults& faults() { return faults_; }
  void SetPort(int host, const Port& port) { ports_[host].port = port; }
  /// Sees what is sent to which host, before anything happens to it.
  void SetTap(std::function<void(int to_host, const test::Bytes& frame)> tap) { tap_ = std::move(tap); }
  /// Nothing reaches this host any more.
  void Cut(int host) { cut_.insert(host); }
  const Traffic& traffic() const { return traffic_; }

 private:
  struct PortState {
    Port port;
    uint64_t empty_at_ns = 0;
  };

  bool Happens(double probability);
  bool Queue(uint64_t now_ns, PortState& state, test::Bytes& frame);
  Arrival& Push(uint64_t now_ns, int from_host, int to_host, std::span<const uint8_t> frame);

  // Frames stay where they are while the queue moves; their memory is used again.
  struct Entry {
    uint64_t at_ns;
    uint64_t order;  // ties are broken by the order of sending
    Arrival* arrival;
    bool operator>(const Entry& other) const { return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order; }
  };

  Faults faults_;
  std::function<void(int, const test::Bytes&)> tap_;
  std::set<int> cut_;
  std::map<int, PortState> ports_;
  test::Bytes queued_;
  std::mt19937_64 random_;
  uint64_t next_order_ = 0;
  std::map<std::pair<int, int>, uint64_t> last_at_ns_;  // by hosts
  Traffic traffic_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  std::deque<Arrival> arrivals_;
  std::vector<Arrival*> free_;
  Arrival* taken_ = nullptr;
};

}  // namespace mlnet::sim
