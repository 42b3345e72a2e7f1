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
  Packetizer(const EngineConfig& config, const TreeConfig& tree);

  /// Length of the packet; a retry is always full length (rule 4).
  size_t Bytes(const Collective& collective, uint64_t packet, bool is_retry) const;
  /// REQUIRES: out.size() == Bytes(...); the traffic is ready for the packet.
  void Build(const Collective& collective, uint8_t stream, uint64_t packet, bool is_retry,
             std::span<std::byte> out) const;

 private:
  std::shared_ptr<const wire::Signer> signer_;
  mlnet_hdr header_;  // what all packets of this rank in this tree share
};

}  // namespace mlnet::worker
