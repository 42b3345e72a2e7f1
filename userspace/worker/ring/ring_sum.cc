// SPDX-License-Identifier: Apache-2.0
#include "ring/ring_sum.h"

#include <algorithm>
#include <cstring>

namespace mlnet::worker {
namespace {

template <typename T>
void MaxInto(void* to, const void* from, size_t bytes) {
  auto* a = static_cast<std::byte*>(to);
  const auto* b = static_cast<const std::byte*>(from);
  for (size_t at = 0; at < bytes; at += sizeof(T)) {
    T x, y;
    std::memcpy(&x, a + at, sizeof(T));
    std::memcpy(&y, b + at, sizeof(T));
    x = std::max(x, y);
    std::memcpy(a + at, &x, sizeof(T));
  }
}

void Combine(uint8_t op, std::span<uint64_t> to, const uint64_t* from) {
  const size_t bytes = to.size_bytes();
  switch (op) {
    case MLNET_OP_MAX8:
      return MaxInto<uint8_t>(to.data(), from, bytes);
    case MLNET_OP_MAX16:
      return MaxInto<uint16_t>(to.data(), from, bytes);
    case MLNET_OP_MAX32:
      return MaxInto<uint32_t>(to.data(), from, bytes);
    case MLNET_OP_MAX64:
      return MaxInto<uint64_t>(to.data(), from, bytes);
    case MLNET_OP_OR:
      for (size_t i = 0; i < to.size(); ++i) to[i] |= from[i];
      return;
    case MLNET_OP_XOR:
      for (size_t i = 0; i < to.size(); ++i) to[i] ^= from[i];
      return;
    case MLNET_OP_ADD32:
      for (size_t i = 0; i < to.size(); ++i) to[i] = wire::AddSums(MLNET_OP_ADD32, to[i], from[i]);
      return;
    default:
      for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  }
}

}  // namespace

RingSum::RingSum(const wire::View& packet) : header_(packet.header), trailer_(packet.trailer) {
  const bool is_empty = (header_.flags & MLNET_F_NO_DATA) != 0;
  header_.flags &= MLNET_F_OR_MASK;
  header_.child = MLNET_CHILD_ALL;
  if (is_empty) trailer_.weight = 0;
  has_words_ = !is_empty && !packet.payload.empty();
  if (has_words_) std::memcpy(words_.data(), packet.payload.data(), packet.payload.size());
}

RingSum::RingSum(const mlnet_hdr& header, const mlnet_cell& cell) : header_(header), has_words_(cell.words > 0) {
  header_.op_wire = cell.op_wire;
  header_.flags = cell.flags & MLNET_F_OR_MASK;
  header_.child = MLNET_CHILD_ALL;
  header_.words = cell.words;
  header_.fingerprint = cell.fingerprint;
  trailer_.bitmap = cell.bitmap;
  trailer_.weight = cell.weight;
  std::memcpy(trailer_.exps, cell.exps, sizeof(trailer_.exps));
  std::copy_n(cell.w, cell.words, words_.begin());
}

bool RingSum::Matches(const RingSum& other) const {
  return header_.fingerprint == other.header_.fingerprint && header_.words == other.header_.words &&
         header_.op_wire == other.header_.op_wire;
}

void RingSum::Add(const RingSum& other) {
  header_.flags |= other.header_.flags;
  const bool is_16_bit = wire::Wire(header_) == MLNET_WIRE_FLOAT64;
  (is_16_bit ? MaxInto<uint16_t> : MaxInto<uint8_t>)(trailer_.exps, other.trailer_.exps, sizeof(trailer_.exps));
  trailer_.bitmap |= other.trailer_.bitmap;
  trailer_.weight = static_cast<uint16_t>(trailer_.weight + other.trailer_.weight);
  if (!other.has_words_) return;
  if (has_words_) Combine(wire::Op(header_), Words(), other.words_.data());
  else std::copy_n(other.words_.begin(), header_.words, words_.begin());
  has_words_ = true;
}

size_t RingSum::Write(uint8_t type, std::span<std::byte> out) const {
  mlnet_hdr header = header_;
  header.version_type = wire::VersionType(type);
  if (has_words_ || header.words == 0) return wire::Seal(header, Words(), trailer_, out);
  if (type == MLNET_T_RESULT) {
    constexpr std::array<uint64_t, MLNET_WORDS_MAX> kZeros{};
    return wire::Seal(header, std::span(kZeros).first(header.words), trailer_, out);
  }
  header.flags |= MLNET_F_NO_DATA | MLNET_F_NO_PAYLOAD;
  return wire::Seal(header, {}, trailer_, out);
}

void RingSum::WriteTo(mlnet_cell& cell) const {
  cell.bitmap = trailer_.bitmap;
  cell.time_ns = 0;
  cell.fingerprint = header_.fingerprint;
  cell.weight = trailer_.weight;
  cell.words = header_.words;
  cell.op_wire = header_.op_wire;
  cell.flags = header_.flags;
  std::memcpy(cell.exps, trailer_.exps, sizeof(cell.exps));
  if (has_words_) std::copy_n(words_.begin(), header_.words, cell.w);
  else std::fill_n(cell.w, header_.words, 0);
}

}  // namespace mlnet::worker
