// SPDX-License-Identifier: Apache-2.0
// Ethernet/IP/UDP/mlnet frames for tests, of both families. The check word and the checksums are computed here by their
// definition in WIRE_FORMAT.md, not by the code under test.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mlnet/mac.h"
#include "mlnet/wire.h"

namespace mlnet::test {

using Mac = std::array<uint8_t, 6>;
using Bytes = std::vector<uint8_t>;

/// As mlnet_addr: an IPv4 address is mapped (::ffff:a.b.c.d), all 0 is none.
struct Address {
  std::array<uint8_t, 16> bytes{};
  bool IsSet() const { return *this != Address{}; }
  bool IsIpv6() const;
  bool IsMulticast() const;
  bool operator==(const Address&) const = default;
};

/// The family that this run of the test programs is for: IPv6 where MLNET_TEST_IP is 6.
bool IsIpv6Run();
/// IPv6 runs make of `dotted` the address with these last four bytes in 2001:db8::/96, of a group one in ff15::/96.
Address Ip(const std::string& dotted);
/// Link address of a group: RFC 1112 (IPv4), RFC 2464 (IPv6).
Mac GroupMac(const Address& group);

/// One mlnet packet with everything that a test may want to set; sensible defaults for the rest.
struct Frame {
  Mac src_mac{0x02, 0, 0, 0, 0, 0x01};
  Mac dst_mac{0x02, 0, 0, 0, 0, 0xa0};
  Address saddr;  // its family is the frame's
  Address daddr;
  uint16_t dst_port = MLNET_UDP_PORT;
  uint16_t src_port = 40000;
  uint8_t ttl = 64;  // IPv6: hop limit
  uint8_t tos = 0;   // IPv6: traffic class
  uint16_t ip_frag_off = 0x4000;  // DF; IPv4 only

  uint8_t version = MLNET_PROTO_VERSION;
  uint8_t type = MLNET_T_CONTRIB;
  uint8_t op = MLNET_OP_ADD64;
  uint8_t wire = MLNET_WIRE_BIASED32;
  uint16_t job = 1;
  uint16_t epoch = 1;
  uint8_t tree = 0;
  uint8_t class_stream = 0;
  uint8_t child = 0;
  uint8_t flags = 0;
  uint64_t seq = 0;
  uint32_t fingerprint = 0x11223344;
  uint16_t nominal_words = 0;   // header field; set together with words unless NO_PAYLOAD
  std::vector<uint64_t> words;  // payload
  uint64_t bitmap = 0;
  uint16_t weight = 1;
  uint16_t reserved = 0;
  std::array<uint8_t, MLNET_EXPS_BYTES> exps{};
  const mlnet_key* key = nullptr;  // none: the packet has no tag

  /// Sets payload and nominal size.
  Frame& Words(std::vector<uint64_t> payload);
  /// Header only, for a seq of `nominal` words.
  Frame& HeaderOnly(uint16_t nominal);
  /// The bytes on the wire, check word and tag set.
  Bytes Build() const;

 private:
  void BuildIpv4(Bytes& out, uint16_t udp_bytes) const;
  void BuildIpv6(Bytes& out, uint16_t udp_bytes) const;
};

/// What a frame says, read back byte by byte.
struct Parsed {
  Frame frame;
  uint64_t check = 0;
  std::optional<uint64_t> tag;
  bool check_ok = false;
  bool ip_checksum_ok = false;  // IPv6 has none
  uint16_t udp_checksum = 0;
  size_t frame_bytes = 0;
};

/// Where the mlnet header begins in a frame of its family.
size_t HeaderAt(std::span<const uint8_t> frame);
inline size_t PayloadAt(std::span<const uint8_t> frame) { return HeaderAt(frame) + 22; }
Address Destination(std::span<const uint8_t> frame);
/// What a queue does that is filling: sets both bits of ECN. False: the sender has set neither, and does not want to know (RFC 3168).
bool MarkCongestion(Bytes& frame);

/// REQUIRES: an mlnet frame whose lengths fit. Fails the current test otherwise.
Parsed ParseFrame(const Bytes& bytes);

/// S of the check word by its definition: ADD32 sums the two lanes apart, everything else the words.
uint64_t ReferenceSum(uint8_t op, const std::vector<uint64_t>& words);

}  // namespace mlnet::test
