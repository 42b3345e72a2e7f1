// SPDX-License-Identifier: Apache-2.0
// Ethernet/IPv4/UDP/mlnet frames for tests. The check word and the checksums are computed here by their
// definition in WIRE_FORMAT.md, not by the code under test.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "mlnet/wire.h"

namespace mlnet::test {

using Mac = std::array<uint8_t, 6>;
using Bytes = std::vector<uint8_t>;

/// Network-order IPv4 address from dotted text.
uint32_t Ip(const std::string& dotted);

/// One mlnet packet with everything that a test may want to set; sensible defaults for the rest.
struct Frame {
  Mac src_mac{0x02, 0, 0, 0, 0, 0x01};
  Mac dst_mac{0x02, 0, 0, 0, 0, 0xa0};
  uint32_t saddr_be = 0;
  uint32_t daddr_be = 0;
  uint16_t dst_port = MLNET_UDP_PORT;
  uint16_t src_port = 40000;
  uint8_t ttl = 64;
  uint8_t tos = 0;
  uint16_t ip_frag_off = 0x4000;  // DF

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

  /// Sets payload and nominal size.
  Frame& Words(std::vector<uint64_t> payload);
  /// Header only, for a seq of `nominal` words.
  Frame& HeaderOnly(uint16_t nominal);
  /// The bytes on the wire, check word set.
  Bytes Build() const;
};

/// What a frame says, read back byte by byte.
struct Parsed {
  Frame frame;
  uint64_t check = 0;
  bool check_ok = false;
  bool ip_checksum_ok = false;
  uint16_t udp_checksum = 0;
  size_t frame_bytes = 0;
};

/// REQUIRES: an mlnet frame whose lengths fit. Fails the current test otherwise.
Parsed ParseFrame(const Bytes& bytes);

/// S of the check word by its definition: ADD32 sums the two lanes apart, everything else the words.
uint64_t ReferenceSum(uint8_t op, const std::vector<uint64_t>& words);

}  // namespace mlnet::test
