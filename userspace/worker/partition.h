// SPDX-License-Identifier: Apache-2.0
// Stage 1 of the tensor path: a collective becomes packets.
// Why: every rank must cut a tensor in the same way; the cut depends on the call and the job alone.
// Not here: seq numbers (lane.h), bytes on the wire (packetize.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "mlnet/communicator.h"

namespace mlnet::worker {

enum class CollectiveKind : uint8_t { kAllReduce = 0, kBroadcast = 1, kAllGather = 2, kBarrier = 3 };

/// One call, as the caller made it.
struct CollectiveSpec {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DataType dtype = DataType::kFloat32;  // all-reduce only
  ReduceOp op = ReduceOp::kSum;         // all-reduce only
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;  // elements (all-reduce) or bytes (the others)
  int root = 0;      // broadcast only
  int traffic_class = 0;
  uint64_t timeout_ns = 0;  // 0: the job's
};

struct Geometry {
  uint32_t blocks = 0;  // of a full packet
  uint32_t slots = 0;   // P of the class
  int world_size = 1;
};

/// How the packets of a collective are laid out: `probes` first, then `packets` with data.
struct Plan {
  uint64_t packets = 0;
  uint32_t probes = 0;
  uint32_t probe_covers = 1;      // data packets per probe
  uint32_t covered = 0;           // data packets whose exponents the probes carry: min(packets, P)
  uint32_t units_per_packet = 1;  // elements or bytes
  uint32_t unit_bytes = 1;
  uint64_t total() const { return probes + packets; }
};

/// One data packet: a run of units of the caller's buffer.
struct Piece {
  uint64_t offset = 0;  // first unit
  uint32_t count = 0;   // units; 0: nothing but the header
  uint16_t words = 0;   // payload words, whole blocks
  int owner = -1;       // the only rank with data here; -1: every rank
};

bool HasExponents(const CollectiveSpec& spec);
Plan Partition(const CollectiveSpec& spec, const Geometry& geometry);
Piece PieceOf(const CollectiveSpec& spec, const Plan& plan, int world_size, uint64_t packet);
/// Payload words of probe `probe`.
uint16_t ProbeWords(const Plan& plan, uint32_t probe);

}  // namespace mlnet::worker
