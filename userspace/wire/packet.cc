// SPDX-License-Identifier: Apache-2.0
#include "wire/packet.h"

#include <cstring>

namespace mlnet::wire {
namespace {

constexpr uint64_t kLaneSignBits = 0x8000000080000000ULL;

uint64_t LoadLe(const void* bytes, size_t count) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, count);
  return word;
}

// Two 32-bit adds without a carry from the lower lane into the upper one.
constexpr uint64_t AddLanes32(uint64_t a, uint64_t b) {
  return ((a & ~kLaneSignBits) + (b & ~kLaneSignBits)) ^ ((a ^ b) & kLaneSignBits);
}

// A loop for each way to add: with one that asks anew for every word the compiler makes no vectors.
template <typename Load>
uint64_t SumWords(uint8_t op, size_t count, Load load) {
  uint64_t sum = 0;
  if (op == MLNET_OP_ADD32) {
    for (size_t i = 0; i < count; ++i) sum = AddLanes32(sum, load(i));
    return sum;
  }
  uint64_t sums[4] = {};  // four sums, since each add would wait for the one before
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (size_t j = 0; j < 4; ++j) sums[j] += load(i + j);
  }
  for (; i < count; ++i) sum += load(i);
  return sum + sums[0] + sums[1] + sums[2] + sums[3];
}

}  // namespace

uint64_t AddSums(uint8_t op, uint64_t a, uint64_t b) {
  return op == MLNET_OP_ADD32 ? AddLanes32(a, b) : a + b;
}

uint64_t PayloadSum(uint8_t op, std::span<const uint64_t> words) {
  return SumWords(op, words.size(), [&](size_t i) { return words[i]; });
}

uint64_t Mix(const mlnet_hdr& header, const mlnet_trailer& trailer) {
  const auto* h = reinterpret_cast<const unsigned char*>(&header);
  const auto* e = trailer.exps;
  const uint64_t w[MLNET_MIX_WORDS] = {
      LoadLe(h, 8),
      LoadLe(h + 8, 8),
      LoadLe(h + 16, 6),
      trailer.bitmap,
      trailer.weight | (static_cast<uint64_t>(trailer.reserved) << 16),
      LoadLe(e, 8),
      LoadLe(e + 8, 8),
      LoadLe(e + 16, 6),
  };
  uint64_t mix = MLNET_MIX_K(MLNET_MIX_WORDS);
  for (unsigned i = 0; i < MLNET_MIX_WORDS; ++i) mix += w[i] * MLNET_MIX_K(i);
  return mix;
}

size_t Seal(const mlnet_hdr& header, std::span<const uint64_t> words, const mlnet_trailer& trailer,
            std::span<std::byte> out, const Signer* signer) {
  const size_t count = (header.flags & MLNET_F_NO_PAYLOAD) ? 0 : words.size();
  mlnet_trailer sealed = trailer;
  sealed.check = PayloadSum(Op(header), words.first(count)) + Mix(header, trailer);
  std::memcpy(out.data(), &header, sizeof(header));
  if (count > 0) std::memcpy(out.data() + sizeof(header), words.data(), count * 8);
  std::memcpy(out.data() + sizeof(header) + count * 8, &sealed, sizeof(sealed));
  const size_t bytes = PacketBytes(count, signer);
  if (signer != nullptr) signer->Sign(out.first(bytes));
  return bytes;
}

bool Parse(std::span<const std::byte> bytes, View& out) {
  if (bytes.size() < kOverheadBytes) return false;
  std::memcpy(&out.header, bytes.data(), sizeof(mlnet_hdr));
  if (out.header.version_type >> 4 != MLNET_PROTO_VERSION) return false;
  const size_t words = out.header.words;
  if (words > MLNET_WORDS_MAX || words % MLNET_BLOCK_WORDS != 0) return false;
  const size_t payload = (out.header.flags & MLNET_F_NO_PAYLOAD) ? 0 : words * 8;
  if (bytes.size() != kOverheadBytes + payload) return false;
  out.payload = bytes.subspan(sizeof(mlnet_hdr), payload);
  std::memcpy(&out.trailer, bytes.data() + sizeof(mlnet_hdr) + payload, sizeof(mlnet_trailer));
  return true;
}

bool Verify(const View& view) {
  const uint8_t op = Op(view.header);
  const uint64_t sum = SumWords(op, view.payload.size() / 8,
                                [&](size_t i) { return LoadLe(view.payload.data() + i * 8, 8); });
  return view.trailer.check == sum + Mix(view.header, view.trailer);
}

}  // namespace mlnet::wire
