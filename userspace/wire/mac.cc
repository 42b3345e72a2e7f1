// SPDX-License-Identifier: Apache-2.0
#include "wire/mac.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "wire/packet.h"

namespace mlnet::wire {
namespace {

constexpr size_t kSipWords = 2;

uint64_t Load(const void* bytes, size_t count = 8) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, count);
  return word;
}

// SipHash-2-4 of eight bytes.
uint64_t SipOfWord(const __u64 key[2], uint64_t word) {
  mlnet_sip s;
  mlnet_sip_begin(&s, key);
  mlnet_sip_word(&s, word);
  return mlnet_sip_end(&s, uint64_t{8} << 56);
}

mlnet_nh HashOf(const mlnet_key& key, std::span<const std::byte> payload, const std::byte* trailer) {
  const std::byte* const exps = trailer + offsetof(mlnet_trailer, exps);
  const uint64_t words[MLNET_NH_TRAILER_WORDS] = {Load(trailer), Load(trailer + 8), Load(trailer + 16, 4),
                                                  Load(exps),    Load(exps + 8),    Load(exps + 16, 6)};
  mlnet_nh nh{};
  const __u64* k = key.nh;
  for (const uint64_t word : words) mlnet_nh_add(&nh, word, k++);
  for (size_t at = 0; at < payload.size(); at += 8) mlnet_nh_add(&nh, Load(payload.data() + at), k++);
  return nh;
}

bool IsMapped(const MappedAddress& address) {
  constexpr std::array<uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kMapped.begin(), kMapped.end(), address.begin());
}

}  // namespace

mlnet_key DeriveKey(const JobKey& key, uint16_t job, uint16_t epoch) {
  const __u64 master[2] = {Load(key.data()), Load(key.data() + 8)};
  const uint64_t id = MLNET_KEY_ID(job, epoch);
  mlnet_key derived;
  for (size_t i = 0; i < kSipWords; ++i) derived.sip[i] = SipOfWord(master, id | static_cast<uint64_t>(i) << 32);
  for (size_t i = 0; i < MLNET_NH_KEY_WORDS; ++i) {
    derived.nh[i] = SipOfWord(master, id | static_cast<uint64_t>(i + kSipWords) << 32);
  }
  return derived;
}

StreamKey DeriveStreamKey(const JobKey& key, uint16_t job, uint16_t epoch) {
  const __u64 master[2] = {Load(key.data()), Load(key.data() + 8)};
  const uint64_t id = MLNET_KEY_ID(job, epoch);
  constexpr uint64_t kFirst = kSipWords + MLNET_NH_KEY_WORDS;  // behind those of packets
  return {SipOfWord(master, id | kFirst << 32), SipOfWord(master, id | (kFirst + 1) << 32)};
}

uint64_t TagOf(const StreamKey& key, std::span<const uint64_t> words, std::span<const std::byte> bytes) {
  const __u64 sip[2] = {key[0], key[1]};
  mlnet_sip s;
  mlnet_sip_begin(&s, sip);
  for (const uint64_t word : words) mlnet_sip_word(&s, word);
  const size_t rest = bytes.size() % 8;
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) mlnet_sip_word(&s, Load(bytes.data() + at));
  const uint64_t last = rest == 0 ? 0 : Load(bytes.data() + bytes.size() - rest, rest);
  return mlnet_sip_end(&s, last | static_cast<uint64_t>(words.size() * 8 + bytes.size()) << 56);
}

std::string ToHex(const JobKey& key) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : key) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 0xf];
  }
  return text;
}

std::optional<JobKey> KeyFromHex(std::string_view text) {
  JobKey key;
  if (text.size() != key.size() * 2) return std::nullopt;
  for (size_t i = 0; i < key.size(); ++i) {
    const char* const digits = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, key[i], 16);
    if (error != std::errc() || end != digits + 2) return std::nullopt;
  }
  return key;
}

Signer::Signer(std::shared_ptr<const mlnet_key> key, const MappedAddress& from, const MappedAddress& to)
    : key_(std::move(key)), is_ipv6_(!IsMapped(from)) {
  if (is_ipv6_) {
    for (size_t i = 0; i < 2; ++i) {
      hop_.address[i] = Load(from.data() + 8 * i);
      hop_.address[2 + i] = Load(to.data() + 8 * i);
    }
  } else {
    hop_.address[0] = Load(from.data() + 12, 4) | Load(to.data() + 12, 4) << 32;
  }
}

void Signer::Sign(std::span<std::byte> packet) const {
  const std::span<std::byte> whole = packet.first(packet.size() - MLNET_MAC_BYTES);
  mlnet_mac_input in = hop_;
  in.h[0] = Load(whole.data());
  in.h[1] = Load(whole.data() + 8);
  in.h[2] = Load(whole.data() + 16, 6);
  in.nh = HashOf(*key_, whole.subspan(sizeof(mlnet_hdr), whole.size() - kOverheadBytes),
                 whole.data() + whole.size() - sizeof(mlnet_trailer));
  const uint64_t tag = mlnet_mac_tag(key_.get(), &in, is_ipv6_);
  std::memcpy(packet.data() + whole.size(), &tag, sizeof(tag));
}

}  // namespace mlnet::wire
