// SPDX-License-Identifier: Apache-2.0
// One packet's sum in user space: what the slot engine does to a set (bpf/aggregate/accumulate.bpf.h), for the ring.
// Why: the ring moves the packets of the slot protocol, so its results are those of the kernel, bit for bit.
// Not here: who adds what to what (ring_router.h).
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "mlnet/job.h"
#include "wire/packet.h"

namespace mlnet::worker {

class RingSum {
 public:
  RingSum() = default;
  /// A contribution, or a sum on its way. REQUIRES: a packet that wire::Parse took.
  explicit RingSum(const wire::View& packet);
  /// A result that lies in an inbox, of the stream and seq that `header` names.
  RingSum(const mlnet_hdr& header, const mlnet_cell& cell);

  const mlnet_hdr& header() const { return header_; }
  uint64_t seq() const { return wire::Seq(header_); }
  /// Whether both belong to the same packet of the same collective.
  bool Matches(const RingSum& other) const;
  /// REQUIRES: Matches(other).
  void Add(const RingSum& other);
  /// As a packet of this type; a result always has its words. Gives its length.
  size_t Write(uint8_t type, std::span<std::byte> out) const;
  /// As the program leaves a result in an inbox, but for the stamps.
  void WriteTo(mlnet_cell& cell) const;

 private:
  std::span<uint64_t> Words() { return std::span(words_).first(header_.words); }
  std::span<const uint64_t> Words() const { return std::span(words_).first(header_.words); }

  mlnet_hdr header_{};
  mlnet_trailer trailer_{};
  bool has_words_ = false;  // else all are zero: nobody has had data yet
  alignas(64) std::array<uint64_t, MLNET_WORDS_MAX> words_;
};

}  // namespace mlnet::worker
