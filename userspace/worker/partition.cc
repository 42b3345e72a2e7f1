// SPDX-License-Identifier: Apache-2.0
#include "partition.h"

#include <algorithm>

#include "mlnet/wire.h"

namespace mlnet::worker {
namespace {

constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

uint16_t WordsFor(uint64_t bytes) {
  return static_cast<uint16_t>(CeilDiv(bytes, MLNET_BLOCK_BYTES) * MLNET_BLOCK_WORDS);
}

}  // namespace

bool HasExponents(const CollectiveSpec& spec) {
  return spec.kind == CollectiveKind::kAllReduce && spec.dtype == DataType::kFloat32;
}

Plan Partition(const CollectiveSpec& spec, const Geometry& geometry) {
  const uint32_t packet_bytes = geometry.blocks * MLNET_BLOCK_BYTES;
  Plan plan;
  plan.unit_bytes = spec.kind == CollectiveKind::kAllReduce ? static_cast<uint32_t>(SizeOf(spec.dtype)) : 1;
  plan.units_per_packet = packet_bytes / plan.unit_bytes;
  // A collective without a single byte still takes part in the order: one packet without payload.
  const uint64_t runs = CeilDiv(spec.count, plan.units_per_packet);
  const bool is_gather = spec.kind == CollectiveKind::kAllGather;
  plan.packets = std::max<uint64_t>(1, is_gather ? runs * static_cast<uint64_t>(geometry.world_size) : runs);
  if (HasExponents(spec) && spec.count > 0) {
    plan.probe_covers = std::min<uint32_t>(MLNET_PROBE_COVERS, packet_bytes / MLNET_EXPS_BYTES);
    plan.covered = static_cast<uint32_t>(std::min<uint64_t>(plan.packets, geometry.slots));
    plan.probes = static_cast<uint32_t>(CeilDiv(plan.covered, plan.probe_covers));
  }
  return plan;
}

Piece PieceOf(const CollectiveSpec& spec, const Plan& plan, int world_size, uint64_t packet) {
  Piece piece;
  if (spec.count == 0) return piece;
  uint64_t run = packet;
  if (spec.kind == CollectiveKind::kBroadcast) piece.owner = spec.root;
  if (spec.kind == CollectiveKind::kAllGather) {
    // Owners alternate, so that all uplinks carry data at the same time.
    piece.owner = static_cast<int>(packet % static_cast<uint64_t>(world_size));
    run = packet / static_cast<uint64_t>(world_size);
  }
  piece.offset = run * plan.units_per_packet;
  piece.count = static_cast<uint32_t>(std::min<uint64_t>(plan.units_per_packet, spec.count - piece.offset));
  piece.words = WordsFor(static_cast<uint64_t>(piece.count) * plan.unit_bytes);
  return piece;
}

uint16_t ProbeWords(const Plan& plan, uint32_t probe) {
  const uint32_t first = probe * plan.probe_covers;
  const uint32_t covered = std::min(plan.probe_covers, plan.covered - first);
  return WordsFor(static_cast<uint64_t>(covered) * MLNET_EXPS_BYTES);
}

}  // namespace mlnet::worker
