// SPDX-License-Identifier: Apache-2.0
// CommStats while the engine counts: one writer, any reader, no locked instruction.
#pragma once

#include <atomic>

#include "mlnet/communicator.h"

namespace mlnet::worker {

class Counter {
 public:
  void Add(uint64_t n = 1) { value_.store(Read() + n, std::memory_order_relaxed); }
  void Set(uint64_t n) { value_.store(n, std::memory_order_relaxed); }
  uint64_t Read() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct Counters {
  Counter packets_sent, retransmits, early_resends, results, bytes, summed_in_kernel, summed_in_user_space;
  Counter probes, wide_blocks, nonfinite_packets, repairs, held, busy, sleeps, rtt_us, summed_in_ring, marked;

  CommStats Snapshot() const {
    CommStats s;
    s.packets_sent = packets_sent.Read();
    s.retransmits = retransmits.Read();
    s.early_resends = early_resends.Read();
    s.results = results.Read();
    s.bytes = bytes.Read();
    s.summed_in_kernel = summed_in_kernel.Read();
    s.summed_in_user_space = summed_in_user_space.Read();
    s.probes = probes.Read();
    s.wide_blocks = wide_blocks.Read();
    s.nonfinite_packets = nonfinite_packets.Read();
    s.repairs = repairs.Read();
    s.held = held.Read();
    s.busy = busy.Read();
    s.sleeps = sleeps.Read();
    s.rtt_us = rtt_us.Read();
    s.summed_in_ring = summed_in_ring.Read();
    s.marked = marked.Read();
    return s;
  }
};

}  // namespace mlnet::worker
