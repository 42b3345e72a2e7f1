// SPDX-License-Identifier: Apache-2.0
// What ranks say to the next one in the ring. Between processes of one job that run the same version, on machines with
// the same byte order (mlnet has little-endian ones only), so these are plain structs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/packet.h"

namespace mlnet::worker {

enum class RingKind : uint16_t {
  kHello = 1,    // RingHello: who opens the connection
  kHeld = 2,     // which results a rank has (held_table.h)
  kPacket = 3,   // a sum on its way (CONTRIB), or a result (RESULT), in the format of the wire
  kMissing = 4,  // RingMissing: a rank has not contributed yet, and the sum waits there
  kAlive = 5,    // empty
  kBye = 6,      // empty: nothing follows
};

struct RingHeader {
  uint32_t bytes = 0;  // of what follows
  uint16_t kind = 0;
  uint16_t hops = 0;  // ranks that it is still for, the next one included
};

inline constexpr size_t kRingTokenBytes = 32;

struct RingHello {
  uint32_t rank = 0;
  uint16_t job = 0;
  uint16_t epoch = 0;
  char token[kRingTokenBytes] = {};
};

struct RingMissing {
  uint32_t rank = 0;
  uint32_t lane = 0;
  uint64_t seq = 0;
};

inline constexpr size_t kRingMessageMax = 1 << 24;  // what a rank holds, in many streams with large pools

/// The next rank.
class RingSink {
 public:
  virtual ~RingSink() = default;
  /// Never blocks; what is under way is bounded by the pools.
  virtual void Send(RingKind kind, uint16_t hops, std::span<const std::byte> body) = 0;
};

/// Ranks behind this one that a message from it reaches.
constexpr uint16_t AllOthers(int world_size) { return static_cast<uint16_t>(world_size - 1); }

}  // namespace mlnet::worker
