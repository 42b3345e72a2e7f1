// SPDX-License-Identifier: Apache-2.0
// A packet as user space reads it: what verifies is what Seal would have made of its fields, and one bit more or less is not.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fuzz/require.h"
#include "wire/packet.h"

namespace {

using namespace mlnet::wire;

void Check(std::span<const std::byte> bytes) {
  View view{};
  if (!Parse(bytes, view) || !Verify(view)) return;
  std::vector<uint64_t> words(view.payload.size() / 8);
  if (!words.empty()) std::memcpy(words.data(), view.payload.data(), words.size() * 8);
  std::array<std::byte, kPacketBytesMax> again{};
  REQUIRE(words.size() <= MLNET_WORDS_MAX);
  const size_t length = Seal(view.header, words, view.trailer, again);
  REQUIRE(length <= bytes.size());
  REQUIRE(std::memcmp(again.data(), bytes.data(), length) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  Check(bytes);
  if (size < sizeof(mlnet_hdr) + sizeof(mlnet_trailer)) return 0;
  // The fuzzer does not find check words: give it a right one.
  mlnet_hdr header;
  mlnet_trailer trailer;
  std::memcpy(&header, data, sizeof(header));
  std::memcpy(&trailer, data + sizeof(header), sizeof(trailer));
  const size_t num_words = (header.flags & MLNET_F_NO_PAYLOAD) != 0 ? 0 : header.words;
  if (num_words > MLNET_WORDS_MAX) return 0;
  std::vector<uint64_t> words(num_words);
  const size_t num_bytes = std::min(words.size() * 8, size - sizeof(header) - sizeof(trailer));
  if (num_bytes > 0) std::memcpy(words.data(), data + sizeof(header) + sizeof(trailer), num_bytes);
  std::array<std::byte, kPacketBytesMax> sealed{};
  const size_t length = Seal(header, words, trailer, sealed);
  const auto packet = std::span(sealed).first(length);
  Check(packet);
  View view{};
  if (!Parse(packet, view)) return 0;
  REQUIRE(Verify(view));
  const size_t bit = data[size - 1] * 8191U % (length * 8);
  sealed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  REQUIRE(!Parse(packet, view) || !Verify(view));
  return 0;
}
