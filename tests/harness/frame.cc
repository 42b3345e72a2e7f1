// SPDX-License-Identifier: Apache-2.0
#include "harness/frame.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>

namespace mlnet::test {
namespace {

constexpr size_t kHeaderAt = 42, kPayloadAt = 64, kTrailerBytes = 42;

void PutLe(Bytes& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

void PutBe16(Bytes& out, uint16_t value) {
  out.push_back(static_cast<uint8_t>(value >> 8));
  out.push_back(static_cast<uint8_t>(value));
}

void PutRaw32(Bytes& out, uint32_t network_order) {
  uint8_t raw[4];
  std::memcpy(raw, &network_order, 4);
  out.insert(out.end(), raw, raw + 4);
}

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

uint32_t Ip(const std::string& dotted) {
  in_addr address{};
  EXPECT_EQ(inet_pton(AF_INET, dotted.c_str(), &address), 1) << dotted;
  return address.s_addr;
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

Bytes Frame::Build() const {
  Bytes out(dst_mac.begin(), dst_mac.end());
  out.insert(out.end(), src_mac.begin(), src_mac.end());
  PutBe16(out, 0x0800);
  const auto udp_bytes = static_cast<uint16_t>(8 + 22 + words.size() * 8 + kTrailerBytes);
  out.push_back(0x45);
  out.push_back(tos);
  PutBe16(out, static_cast<uint16_t>(20 + udp_bytes));
  PutBe16(out, 0x1234);
  PutBe16(out, ip_frag_off);
  out.push_back(ttl);
  out.push_back(17);
  PutBe16(out, 0);
  PutRaw32(out, saddr_be);
  PutRaw32(out, daddr_be);
  const uint16_t checksum = InternetChecksum(out.data() + 14, 20);
  out[24] = static_cast<uint8_t>(checksum >> 8);
  out[25] = static_cast<uint8_t>(checksum);
  PutBe16(out, src_port);
  PutBe16(out, dst_port);
  PutBe16(out, udp_bytes);
  PutBe16(out, 0xbeef);  // as CHECKSUM_PARTIAL leaves it: not a valid checksum

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
  const uint64_t check = ReferenceSum(op, words) + ReferenceMix(out.data() + kHeaderAt, out.data() + trailer_at);
  for (int i = 0; i < 8; ++i) out[trailer_at + static_cast<size_t>(i)] = static_cast<uint8_t>(check >> (8 * i));
  return out;
}

Parsed ParseFrame(const Bytes& b) {
  Parsed p;
  p.frame_bytes = b.size();
  if (b.size() < kPayloadAt + kTrailerBytes) {
    ADD_FAILURE() << "frame of " << b.size() << " bytes is too short";
    return p;
  }
  Frame& f = p.frame;
  std::copy_n(b.begin(), 6, f.dst_mac.begin());
  std::copy_n(b.begin() + 6, 6, f.src_mac.begin());
  f.tos = b[15];
  f.ttl = b[22];
  std::memcpy(&f.saddr_be, &b[26], 4);
  std::memcpy(&f.daddr_be, &b[30], 4);
  f.src_port = static_cast<uint16_t>(b[34] << 8 | b[35]);
  f.dst_port = static_cast<uint16_t>(b[36] << 8 | b[37]);
  p.udp_checksum = static_cast<uint16_t>(b[40] << 8 | b[41]);
  p.ip_checksum_ok = InternetChecksum(&b[14], 20) == 0;
  const uint8_t* h = &b[kHeaderAt];
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
  const auto total = static_cast<size_t>(b[16] << 8 | b[17]);
  const auto udp = static_cast<size_t>(b[38] << 8 | b[39]);
  EXPECT_EQ(total, 20 + 8 + 22 + count * 8 + kTrailerBytes) << "IP total length";
  EXPECT_EQ(udp, total - 20) << "UDP length";
  if (b.size() < kPayloadAt + count * 8 + kTrailerBytes) {
    ADD_FAILURE() << "frame of " << b.size() << " bytes cannot hold " << count << " words";
    return p;
  }
  for (size_t i = 0; i < count; ++i) f.words.push_back(GetLe(&b[kPayloadAt + i * 8], 8));
  const uint8_t* t = &b[kPayloadAt + count * 8];
  p.check = GetLe(t, 8);
  f.bitmap = GetLe(t + 8, 8);
  f.weight = static_cast<uint16_t>(GetLe(t + 16, 2));
  f.reserved = static_cast<uint16_t>(GetLe(t + 18, 2));
  std::copy_n(t + 20, MLNET_EXPS_BYTES, f.exps.begin());
  p.check_ok = p.check == ReferenceSum(f.op, f.words) + ReferenceMix(h, t);
  return p;
}

}  // namespace mlnet::test
