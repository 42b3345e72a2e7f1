// SPDX-License-Identifier: Apache-2.0
// What an operator's look at a running job has gathered on this host so far: what its ranks told, and when sums were complete.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "mlnet/event.h"
#include "rpc/message.h"

namespace mlnet::daemon {

/// Sums of packets next to each other in one pool.
struct SumRun {
  uint8_t tree = 0;
  uint8_t class_stream = 0;
  uint64_t first_seq = 0;
  uint64_t first_ns = 0;          // when that one was complete, CLOCK_MONOTONIC
  uint64_t waited_ns = 0;         // since its first contribution
  std::vector<int64_t> after_ns;  // of each packet, that one included
};

class Trace {
 public:
  Trace(uint64_t incarnation, uint64_t until_ms) : incarnation_(incarnation), until_ms_(until_ms) {}

  uint64_t incarnation() const { return incarnation_; }
  uint64_t until_ms() const { return until_ms_; }
  bool has_ended() const { return has_ended_; }
  /// Nothing new is recorded any more; these ranks still have to send what they have.
  void End(std::set<int> ranks);

  void AddSum(const mlnet_event& event);
  void AddRecords(int rank, const rpc::Json& records, bool is_last);
  void RankGone(int rank) { waits_for_.erase(rank); }

  /// The next rows: {rank, ...} as the rank told, {sum...}; at most so many. `is_over` once nothing follows.
  rpc::Json Take(size_t most, uint64_t now_ms);
  bool IsOver(uint64_t now_ms) const;
  uint64_t lost() const { return lost_; }

 private:
  void Add(rpc::Json row);
  void CloseRuns();

  const uint64_t incarnation_;
  const uint64_t until_ms_;
  bool has_ended_ = false;
  std::set<int> waits_for_;
  std::vector<SumRun> open_;  // at most one a pool and tree
  std::deque<rpc::Json> rows_;
  uint64_t lost_ = 0;
};

}  // namespace mlnet::daemon
