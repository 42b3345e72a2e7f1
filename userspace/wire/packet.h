// SPDX-License-Identifier: Apache-2.0
// mlnet packets in user space: build, seal with the check word, verify. Pure functions over bytes;
// the layout is bpf/abi/mlnet/wire.h, the specification bpf/abi/mlnet/WIRE_FORMAT.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mlnet/wire.h"
#include "wire/mac.h"

namespace mlnet::wire {

inline constexpr size_t kOverheadBytes = sizeof(mlnet_hdr) + sizeof(mlnet_trailer);
inline constexpr size_t kPacketBytesMax = kOverheadBytes + MLNET_WORDS_MAX * 8;  // UDP payload without a tag

/// Bytes of a packet whose payload has `words` words. `signer`: of a job whose packets have a tag, else null.
constexpr size_t PacketBytes(size_t words, const Signer* signer = nullptr) {
  return kOverheadBytes + words * 8 + (signer != nullptr ? MLNET_MAC_BYTES : 0);
}

inline uint64_t Seq(const mlnet_hdr& h) { return h.seq_lo | (static_cast<uint64_t>(h.seq_hi) << 32); }
inline void SetSeq(mlnet_hdr& h, uint64_t seq) {
  h.seq_lo = static_cast<uint32_t>(seq);
  h.seq_hi = static_cast<uint16_t>(seq >> 32);
}
inline uint8_t Type(const mlnet_hdr& h) { return h.version_type & 0xf; }
inline uint8_t Op(const mlnet_hdr& h) { return h.op_wire >> 4; }
inline uint8_t Wire(const mlnet_hdr& h) { return h.op_wire & 0xf; }
constexpr uint8_t VersionType(uint8_t type) { return static_cast<uint8_t>((MLNET_PROTO_VERSION << 4) | type); }
constexpr uint8_t OpWire(uint8_t op, uint8_t wire) { return static_cast<uint8_t>((op << 4) | wire); }

/// S of the check word: how the payload is summed depends on the operation (wire.h).
uint64_t PayloadSum(uint8_t op, std::span<const uint64_t> words);

/// The mix of all header and trailer fields but the check word itself (wire.h).
uint64_t Mix(const mlnet_hdr& header, const mlnet_trailer& trailer);

/// Lane-wise combination of two S values, as the operation adds them.
uint64_t AddSums(uint8_t op, uint64_t a, uint64_t b);

/// Writes header, payload and trailer to `out` with the check word set. The payload is absent when
/// header.flags has NO_PAYLOAD; the tag if there is a signer. Returns the number of bytes written.
/// REQUIRES: out.size() >= PacketBytes(words, signer), words.size() == header.words unless NO_PAYLOAD.
size_t Seal(const mlnet_hdr& header, std::span<const uint64_t> words, const mlnet_trailer& trailer,
            std::span<std::byte> out, const Signer* signer = nullptr);

/// A packet as views into its bytes.
struct View {
  mlnet_hdr header;
  mlnet_trailer trailer;
  std::span<const std::byte> payload;  // unaligned
};

/// Splits `bytes`; false when lengths or version contradict the format. Does not verify the check word.
bool Parse(std::span<const std::byte> bytes, View& out);

/// Whether the check word fits the bytes.
bool Verify(const View& view);

}  // namespace mlnet::wire
