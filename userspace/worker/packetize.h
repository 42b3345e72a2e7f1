// SPDX-License-Identifier: Apache-2.0
// Stage 4 of the tensor path: one packet of a collective as bytes, check word included.
// Why: a packet is built from the caller's tensor each time, retries too, so no send buffer is kept.
// Invariants: the same packet has the same payload whenever it is built: its elements are overwritten
// only after its result came in, and those of packet + P after that.
#pragma once

#include <cstddef>
#include <span>

#include "collective.h"
#include "config.h"

namespace mlnet::worker {

class Packetizer {
 public:
  explicit Packetizer(const EngineConfig& config);

  /// Length of the packet; a retry is always full length (rule 4).
  size_t Bytes(const Collective& collective, uint64_t packet, bool is_retry) const;
  /// REQUIRES: out.size() == Bytes(...); the packet's common exponents are known.
  void Build(const Collective& collective, uint64_t packet, bool is_retry, std::span<std::byte> out) const;

  int log2_range() const { return log2_range_; }

 private:
  void BuildProbe(const Collective& collective, uint32_t probe, uint64_t* words) const;
  void BuildData(const Collective& collective, const Piece& piece, uint64_t packet, uint64_t* words) const;
  bool IsMine(const Piece& piece) const { return piece.owner < 0 || piece.owner == rank_; }

  mlnet_hdr header_;  // what all packets of this rank share
  int rank_;
  int world_size_;
  int log2_range_;
  std::array<uint32_t, MLNET_CLASSES_MAX> slots_;
};

/// The elements of data packet `packet` in the caller's float input.
std::span<const float> FloatsOf(const Collective& collective, uint64_t packet);

}  // namespace mlnet::worker
