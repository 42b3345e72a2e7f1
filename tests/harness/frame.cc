// SPDX-License-Identifier: Apache-2.0
#include "harness/frame.h"
#include "harness/reference_mac.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace mlnet::test {
namespace {

constexpr size_t kIpAt = 14, kIpv4Bytes = 20, kIpv6Bytes = 40, kUdpBytes = 8, kHeaderBytes = 22, kTrailerBytes = 42, kTagBytes = 8;
constexpr std::array<uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

void PutLe(Bytes& out, uint64_t value, int bytes) {
  std::array<uint8_t, sizeof(value)> le{};
  for (size_t i = 0; i < le.size(); ++i) le[i] = static_cast<uint8_t>(value >> (8 * i));
  out.insert(out.end(), le.begin(), le.begin() + bytes);
}

void PutBe16(Bytes& out, uint16_t value) {
  out.push_back(static_cast<uint8_t>(value >> 8));
  out.push_back(static_cast<uint8_t>(value));
}

size_t IpBytes(std::span<const uint8_t> frame) { return frame[12] == 0x86 && frame[13] == 0xdd ? kIpv6Bytes : kIpv4Bytes; }

uint64_t GetLe(const uint8_t* at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= static_cast<uint64_t>(at[i]) << (8 * i);
  return value;
}

// RFC 1071 over whole bytes.
uint16_t InternetChecksum(const uint8_t* bytes, size_t count) {
  uint32_t sum = 0;
  for (size_t i = 0; i < count; i += 2) sum += static_cast<uint32_t>(bytes[i] << 8 | bytes[i + 1]);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

uint64_t ReferenceMix(const uint8_t* header, const uint8_t* trailer) {
  const uint64_t words[] = {GetLe(header, 8),       GetLe(header + 8, 8),   GetLe(header + 16, 6),
                            GetLe(trailer + 8, 8),  GetLe(trailer + 16, 4), GetLe(trailer + 20, 8),
                            GetLe(trailer + 28, 8), GetLe(trailer + 36, 6)};
  uint64_t mix = 0x9e3779b97f4a7c15ULL * 17;
  for (uint64_t i = 0; i < 8; ++i) mix += words[i] * (0x9e3779b97f4a7c15ULL * (2 * i + 1));
  return mix;
}

}  // namespace

bool Address::IsIpv6() const { return IsSet() && !std::equal(kMapped.begin(), kMapped.end(), bytes.begin()); }
bool Address::IsMulticast() const { return IsIpv6() ? bytes[0] == 0xff : bytes[12] >> 4 == 0xe; }

bool IsIpv6Run() {
  const char* family = std::getenv("MLNET_TEST_IP");
  return family != nullptr && std::string(family) == "6";
}

Address Ip(const std::string& dotted) {
  Address address;
  std::copy(kMapped.begin(), kMapped.end(), address.bytes.begin());
  EXPECT_EQ(inet_pton(AF_INET, dotted.c_str(), &address.bytes[12]), 1) << dotted;
  if (!IsIpv6Run()) return address;
  const std::string net = address.IsMulticast() ? "ff15::" : "2001:db8::";
  Address ipv6;
  EXPECT_EQ(inet_pton(AF_INET6, (net + dotted).c_str(), ipv6.bytes.data()), 1) << net + dotted;
  return ipv6;
}

Mac GroupMac(const Address& group) {
  const auto& b = group.bytes;
  if (group.IsIpv6()) return {0x33, 0x33, b[12], b[13], b[14], b[15]};
  return {0x01, 0x00, 0x5e, static_cast<uint8_t>(b[13] & 0x7f), b[14], b[15]};
}

size_t HeaderAt(std::span<const uint8_t> frame) { return kIpAt + IpBytes(frame) + kUdpBytes; }

Address Destination(std::span<const uint8_t> frame) {
  Address address;
  if (IpBytes(frame) == kIpv6Bytes) {
    std::copy_n(&frame[kIpAt + 24], 16, address.bytes.begin());
    return address;
  }
  std::copy(kMapped.begin(), kMapped.end(), address.bytes.begin());
  std::copy_n(&frame[kIpAt + 16], 4, &address.bytes[12]);
  return address;
}

uint64_t ReferenceSum(uint8_t op, const std::vector<uint64_t>& words) {
  uint64_t sum = 0;
  uint32_t low = 0, high = 0;
  for (uint64_t w : words) {
    sum += w;
    low += static_cast<uint32_t>(w);
    high += static_cast<uint32_t>(w >> 32);
  }
  return op == MLNET_OP_ADD32 ? low | (static_cast<uint64_t>(high) << 32) : sum;
}

Frame& Frame::Words(std::vector<uint64_t> payload) {
  words = std::move(payload);
  nominal_words = static_cast<uint16_t>(words.size());
  return *this;
}

Frame& Frame::HeaderOnly(uint16_t nominal) {
  words.clear();
  nominal_words = nominal;
  flags |= MLNET_F_NO_PAYLOAD;
  return *this;
}

// RFC 791.
bool MarkCongestion(Bytes& frame) {
  const bool is_ipv6 = frame[12] == 0x86;
  const uint8_t both = is_ipv6 ? 0x30 : 0x3;  // IPv6 has the lower half of its traffic class in the upper half of this byte
  if ((frame[15] & both) == 0) return false;
  frame[15] |= both;
  if (is_ipv6) return true;
  frame[24] = frame[25] = 0;
  const uint16_t checksum = InternetChecksum(frame.data() + kIpAt, kIpv4Bytes);
  frame[24] = static_cast<uint8_t>(checksum >> 8);
  frame[25] = static_cast<uint8_t>(checksum);
  return true;
}

void Frame::BuildIpv4(Bytes& out, uint16_t udp_bytes) const {
  PutBe16(out, 0x0800);
  out.push_back(0x45);
  out.push_back(tos);
  PutBe16(out, static_cast<uint16_t>(kIpv4Bytes + udp_bytes));
  PutBe16(out, 0x1234);
  PutBe16(out, ip_frag_off);
  out.push_back(ttl);
  out.push_back(17);
  PutBe16(out, 0);
  out.insert(out.end(), saddr.bytes.begin() + 12, saddr.bytes.end());
  out.insert(out.end(), daddr.bytes.begin() + 12, daddr.bytes.end());
  const uint16_t checksum = InternetChecksum(out.data() + kIpAt, kIpv4Bytes);
  out[24] = static_cast<uint8_t>(checksum >> 8);
  out[25] = static_cast<uint8_t>(checksum);
}

// RFC 8200; a flow label that means nothing.
void Frame::BuildIpv6(Bytes& out, uint16_t udp_bytes) const {
  PutBe16(out, 0x86dd);
  PutBe16(out, static_cast<uint16_t>(6 << 12 | tos << 4 | 0x5));
  PutBe16(out, 0x4321);
  PutBe16(out, udp_bytes);
  out.push_back(17);
  out.push_back(ttl);
  out.insert(out.end(), saddr.bytes.begin(), saddr.bytes.end());
  out.insert(out.end(), daddr.bytes.begin(), daddr.bytes.end());
}

Bytes Frame::Build() const {
  Bytes out;
  out.reserve(kIpAt + kIpv6Bytes + kUdpBytes + kHeaderBytes + words.size() * 8 + kTrailerBytes + kTagBytes);
  out.insert(out.end(), dst_mac.begin(), dst_mac.end());
  out.insert(out.end(), src_mac.begin(), src_mac.end());
  const auto udp_bytes = static_cast<uint16_t>(kUdpBytes + kHeaderBytes + words.size() * 8 + kTrailerBytes + (key != nullptr ? kTagBytes : 0));
  if (saddr.IsIpv6()) BuildIpv6(out, udp_bytes);
  else BuildIpv4(out, udp_bytes);
  PutBe16(out, src_port);
  PutBe16(out, dst_port);
  PutBe16(out, udp_bytes);
  PutBe16(out, 0xbeef);  // as CHECKSUM_PARTIAL leaves it: not a valid checksum
  const size_t header_at = out.size();

  out.push_back(static_cast<uint8_t>(version << 4 | type));
  out.push_back(static_cast<uint8_t>(op << 4 | wire));
  PutLe(out, job, 2);
  PutLe(out, epoch, 2);
  out.push_back(tree);
  out.push_back(class_stream);
  out.push_back(child);
  out.push_back(flags);
  PutLe(out, nominal_words, 2);
  PutLe(out, seq, 6);
  PutLe(out, fingerprint, 4);
  for (uint64_t w : words) PutLe(out, w, 8);
  const size_t trailer_at = out.size();
  PutLe(out, 0, 8);
  PutLe(out, bitmap, 8);
  PutLe(out, weight, 2);
  PutLe(out, reserved, 2);
  out.insert(out.end(), exps.begin(), exps.end());
  const uint64_t check = ReferenceSum(op, words) + ReferenceMix(out.data() + header_at, out.data() + trailer_at);
  for (int i = 0; i < 8; ++i) out[trailer_at + static_cast<size_t>(i)] = static_cast<uint8_t>(check >> (8 * i));
  if (key != nullptr) PutLe(out, ReferenceTag(*key, out), static_cast<int>(kTagBytes));
  return out;
}

namespace {

uint16_t GetBe16(const uint8_t* at) { return static_cast<uint16_t>(at[0] << 8 | at[1]); }

// Everything in front of the mlnet header; gives the bytes that follow the IP header by what it says.
size_t ParseIp(const Bytes& b, Parsed& p) {
  Frame& f = p.frame;
  std::copy_n(b.begin(), 6, f.dst_mac.begin());
  std::copy_n(b.begin() + 6, 6, f.src_mac.begin());
  f.daddr = Destination(b);
  if (IpBytes(b) == kIpv6Bytes) {
    f.tos = static_cast<uint8_t>(GetBe16(&b[kIpAt]) >> 4);
    f.ttl = b[kIpAt + 7];
    std::copy_n(&b[kIpAt + 8], 16, f.saddr.bytes.begin());
    p.ip_checksum_ok = true;
    EXPECT_EQ(b[kIpAt] >> 4, 6);
    return GetBe16(&b[kIpAt + 4]);
  }
  f.tos = b[kIpAt + 1];
  f.ttl = b[kIpAt + 8];
  std::copy(kMapped.begin(), kMapped.end(), f.saddr.bytes.begin());
  std::copy_n(&b[kIpAt + 12], 4, &f.saddr.bytes[12]);
  p.ip_checksum_ok = InternetChecksum(&b[kIpAt], kIpv4Bytes) == 0;
  return GetBe16(&b[kIpAt + 2]) - kIpv4Bytes;
}

}  // namespace

Parsed ParseFrame(const Bytes& b) {
  Parsed p;
  p.frame_bytes = b.size();
  if (b.size() < kIpAt || b.size() < PayloadAt(b) + kTrailerBytes) {
    ADD_FAILURE() << "frame of " << b.size() << " bytes is too short";
    return p;
  }
  Frame& f = p.frame;
  const size_t ip_payload = ParseIp(b, p), payload_at = PayloadAt(b);
  const uint8_t* u = &b[kIpAt + IpBytes(b)];
  f.src_port = GetBe16(u);
  f.dst_port = GetBe16(u + 2);
  p.udp_checksum = GetBe16(u + 6);
  const uint8_t* h = &b[HeaderAt(b)];
  f.version = h[0] >> 4;
  f.type = h[0] & 0xf;
  f.op = h[1] >> 4;
  f.wire = h[1] & 0xf;
  f.job = static_cast<uint16_t>(GetLe(h + 2, 2));
  f.epoch = static_cast<uint16_t>(GetLe(h + 4, 2));
  f.tree = h[6];
  f.class_stream = h[7];
  f.child = h[8];
  f.flags = h[9];
  f.nominal_words = static_cast<uint16_t>(GetLe(h + 10, 2));
  f.seq = GetLe(h + 12, 6);
  f.fingerprint = static_cast<uint32_t>(GetLe(h + 18, 4));
  const size_t count = (f.flags & MLNET_F_NO_PAYLOAD) ? 0 : f.nominal_words;
  const size_t untagged = kUdpBytes + kHeaderBytes + count * 8 + kTrailerBytes;
  if (ip_payload == untagged + kTagBytes && b.size() >= payload_at + count * 8 + kTrailerBytes + kTagBytes) {
    p.tag = GetLe(&b[payload_at + count * 8 + kTrailerBytes], static_cast<int>(kTagBytes));
  } else {
    EXPECT_EQ(ip_payload, untagged) << "IP length";
  }
  EXPECT_EQ(GetBe16(u + 4), ip_payload) << "UDP length";
  if (b.size() < payload_at + count * 8 + kTrailerBytes) {
    ADD_FAILURE() << "frame of " << b.size() << " bytes cannot hold " << count << " words";
    return p;
  }
  f.words.reserve(count);
  for (size_t i = 0; i < count; ++i) f.words.push_back(GetLe(&b[payload_at + i * 8], 8));
  const uint8_t* t = &b[payload_at + count * 8];
  p.check = GetLe(t, 8);
  f.bitmap = GetLe(t + 8, 8);
  f.weight = static_cast<uint16_t>(GetLe(t + 16, 2));
  f.reserved = static_cast<uint16_t>(GetLe(t + 18, 2));
  std::copy_n(t + 20, MLNET_EXPS_BYTES, f.exps.begin());
  p.check_ok = p.check == ReferenceSum(f.op, f.words) + ReferenceMix(h, t);
  return p;
}

}  // namespace mlnet::test
