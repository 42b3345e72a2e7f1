// SPDX-License-Identifier: Apache-2.0
#include "harness/reference_mac.h"

#include <array>
#include <bit>
#include <random>
#include <vector>

namespace mlnet::test {
namespace {

constexpr size_t kTrailerBytes = 42, kHeaderBytes = 22;

uint64_t GetLe(const uint8_t* at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value * 256 + at[i];
  return value;
}

void PutLe(std::vector<uint8_t>& out, uint64_t value) {
  for (int i = 0; i < 8; ++i, value /= 256) out.push_back(static_cast<uint8_t>(value % 256));
}

// SipRound as in figure 2.1 of the paper.
void Round(std::array<uint64_t, 4>& v) {
  v[0] += v[1];
  v[1] = std::rotl(v[1], 13) ^ v[0];
  v[0] = std::rotl(v[0], 32);
  v[2] += v[3];
  v[3] = std::rotl(v[3], 16) ^ v[2];
  v[0] += v[3];
  v[3] = std::rotl(v[3], 21) ^ v[0];
  v[2] += v[1];
  v[1] = std::rotl(v[1], 17) ^ v[2];
  v[2] = std::rotl(v[2], 32);
}

}  // namespace

uint64_t ReferenceSip(uint64_t key0, uint64_t key1, std::span<const uint8_t> bytes) {
  std::array<uint64_t, 4> v = {key0 ^ 0x736f6d6570736575, key1 ^ 0x646f72616e646f6d, key0 ^ 0x6c7967656e657261,
                               key1 ^ 0x7465646279746573};
  std::vector<uint8_t> padded(bytes.begin(), bytes.end());
  while (padded.size() % 8 != 7) padded.push_back(0);
  padded.push_back(static_cast<uint8_t>(bytes.size() % 256));
  for (size_t at = 0; at < padded.size(); at += 8) {
    const uint64_t m = GetLe(&padded[at], 8);
    v[3] ^= m;
    for (int i = 0; i < 2; ++i) Round(v);
    v[0] ^= m;
  }
  v[2] ^= 0xff;
  for (int i = 0; i < 4; ++i) Round(v);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t ReferenceNh(std::span<const uint64_t> words, const __u64* key) {
  using Long = unsigned __int128;
  constexpr Long k32 = Long{1} << 32, k64 = Long{1} << 64;
  Long sum = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    const Long low = (words[i] % k32 + key[i] % k32) % k32;
    const Long high = (words[i] / k32 + key[i] / k32) % k32;
    sum = (sum + low * high) % k64;
  }
  return static_cast<uint64_t>(sum);
}

uint64_t ReferenceTag(const mlnet_key& key, std::span<const uint8_t> frame) {
  const bool is_ipv6 = frame[12] == 0x86;
  const uint8_t* const addresses = &frame[14 + (is_ipv6 ? 8 : 12)];
  const uint8_t* const header = &frame[14 + (is_ipv6 ? 40 : 20) + 8];
  const size_t payload_bytes = header[9] & 1 ? 0 : GetLe(header + 10, 2) * 8;
  const uint8_t* const payload = header + kHeaderBytes;
  const uint8_t* const trailer = payload + payload_bytes;
  if (trailer + kTrailerBytes > frame.data() + frame.size()) return 0;  // the test will show it
  std::vector<uint64_t> words = {GetLe(trailer, 8),      GetLe(trailer + 8, 8),  GetLe(trailer + 16, 4),
                                 GetLe(trailer + 20, 8), GetLe(trailer + 28, 8), GetLe(trailer + 36, 6)};
  for (size_t at = 0; at < payload_bytes; at += 8) words.push_back(GetLe(payload + at, 8));
  std::vector<uint8_t> covered(header, header + kHeaderBytes);
  covered.insert(covered.end(), {0, 0});
  PutLe(covered, ReferenceNh(words, key.nh));
  PutLe(covered, ReferenceNh(words, key.nh + 1));
  covered.insert(covered.end(), addresses, addresses + (is_ipv6 ? 32 : 8));
  return ReferenceSip(key.sip[0], key.sip[1], covered);
}

mlnet_key TestKey(uint64_t seed) {
  std::mt19937_64 random(seed);
  mlnet_key key;
  for (__u64& word : key.sip) word = random();
  for (__u64& word : key.nh) word = random();
  return key;
}

}  // namespace mlnet::test
