// SPDX-License-Identifier: Apache-2.0
// What one rank knows about its job: the answer to `join`, as plain values.
// Why: engine, stages and tests agree on it without any of them knowing JSON.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlnet/wire.h"
#include "wire/mac.h"

namespace mlnet::worker {

struct PoolConfig {
  bool is_open = false;
  uint8_t log2_slots = 0;  // P = 1 << log2_slots
  uint32_t cell_base = 0;  // first inbox cell of the pool
  uint64_t first_seq = 0;  // 0 in every epoch; tests start near a wrap of 32 bits
  uint32_t slots() const { return 1U << log2_slots; }
};

/// One way up: the aggregator that this rank sends to, and its pools there.
struct TreeConfig {
  uint8_t tree = 0;     // as on the wire
  uint8_t child = 0;    // index at the aggregator
  uint32_t weight = 1;  // share of large calls
  std::shared_ptr<const wire::Signer> signer;       // of a job whose packets have a tag
  std::string aggregator;                           // "10.77.0.5:28012", for messages
  std::vector<std::vector<int>> children;            // ranks behind each child of the aggregator, for messages
  std::vector<std::vector<int>> above;               // the same of the node above it; empty: it is the root
  std::array<PoolConfig, MLNET_CLASSES_MAX> pools;   // by traffic class, stream 0
  std::array<PoolConfig, MLNET_CLASSES_MAX> fixups;  // stream 1, open where stream 0 is
};

/// What mlnetd grants a rank while other jobs use its links too; by default everything.
struct Grant {
  uint32_t window = 0;  // packets on their way in all lanes together; 0: no limit
  uint64_t gap_ns = 0;  // from an answer to the next packet of a lane
  bool waits = false;   // another job goes first: deadlines stand still as long as answers come at all
  int dscp = -1;        // of all packets; -1: each class has its own
  bool operator==(const Grant&) const = default;
};

/// A way of its own for packets: a tree and a traffic class.
inline size_t FlowOf(size_t tree_index, int traffic_class) {
  return tree_index * MLNET_CLASSES_MAX + static_cast<size_t>(traffic_class);
}

struct EngineConfig {
  uint16_t job = 0;
  uint16_t epoch = 1;
  int rank = 0;
  int world_size = 1;
  uint32_t blocks = MLNET_BLOCKS_MTU1500;  // of a full packet
  uint64_t timeout_ns = 30'000'000'000;
  uint64_t ping_ns = 0;  // from one sign of life to the next; 0: none
  uint64_t rto_min_ns = 1'000'000;
  uint64_t rto_max_ns = 200'000'000;
  uint32_t window_first = 32;
  size_t small_bytes = 16384;  // see JoinOptions
  std::optional<wire::StreamKey> ring_key;  // of a job whose packets have a tag: for the ring
  bool starts_in_ring = false;  // the kernel sums nothing: nothing is sent before the ring is there
  bool has_server = false;     // the job has one, for push and pull
  bool is_server = false;      // this is it; its rank is world_size
  std::vector<TreeConfig> trees = std::vector<TreeConfig>(1);  // the same classes are open in all
};

}  // namespace mlnet::worker
