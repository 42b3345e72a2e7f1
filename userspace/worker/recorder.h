// SPDX-License-Identifier: Apache-2.0
// What happened when to the collectives of a rank, for `mlnetctl trace`. Off, it costs a load and a branch for each collective.
// Used by the engine's thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace mlnet::worker {

/// One part of a collective in one lane. Times are CLOCK_MONOTONIC in ns; but for received_ns those at which the engine's turn began.
struct TraceRecord {
  std::string what;  // "all_reduce #12 float32 sum count=1000"
  uint8_t tree = 0;
  uint8_t traffic_class = 0;
  uint8_t stream = 0;
  uint64_t first_seq = 0;
  uint64_t packets = 0;
  uint64_t bytes = 0;           // of the caller's
  uint64_t called_ns = 0;       // its place in the order was known; from then on it waits for its turn
  uint64_t sent_first_ns = 0;   // its first packet left
  uint64_t sent_last_ns = 0;    // its last one left for the first time
  uint64_t received_ns = 0;     // the kernel of this host had its last result
  uint64_t done_ns = 0;         // that was copied out

  /// done_ns, or later where the last result came while the turn lasted that took it.
  uint64_t EndNs() const { return std::max(done_ns, received_ns); }
};

class Recorder {
 public:
  void Start() { is_on_ = true; }
  /// What was recorded is still to be taken.
  void Stop() { is_on_ = false; }
  bool IsOn() const { return is_on_; }
  void Add(TraceRecord record) { records_.push_back(std::move(record)); }
  bool IsEmpty() const { return records_.empty(); }
  /// The oldest ones, at most `most`.
  std::vector<TraceRecord> Take(size_t most);

 private:
  bool is_on_ = false;
  std::vector<TraceRecord> records_;
};

}  // namespace mlnet::worker
