// SPDX-License-Identifier: Apache-2.0
// Tags of jobs whose packets are authenticated: keys, and what a sender in user space puts behind its packets.
// The functions are those of mlnet/mac.h; WIRE_FORMAT.md ("Tag") specifies them and says what a tag promises.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "mlnet/mac.h"

namespace mlnet::wire {

/// Of a job; random. Packets are tagged with what is derived from it for their epoch.
using JobKey = std::array<uint8_t, 16>;

mlnet_key DeriveKey(const JobKey& key, uint16_t job, uint16_t epoch);

/// For what ranks send each other in an epoch without the kernel: as a stream, not as packets.
using StreamKey = std::array<uint64_t, 2>;
StreamKey DeriveStreamKey(const JobKey& key, uint16_t job, uint16_t epoch);

/// SipHash-2-4 of the words as bytes, then `bytes`.
uint64_t TagOf(const StreamKey& key, std::span<const uint64_t> words, std::span<const std::byte> bytes);

/// 32 hex digits.
std::string ToHex(const JobKey& key);
std::optional<JobKey> KeyFromHex(std::string_view text);

/// IPv4 addresses mapped, ::ffff:a.b.c.d.
using MappedAddress = std::array<uint8_t, 16>;

/// Tags what goes from one address to another.
class Signer {
 public:
  Signer(std::shared_ptr<const mlnet_key> key, const MappedAddress& from, const MappedAddress& to);

  /// Writes the tag behind a packet. REQUIRES: the last MLNET_MAC_BYTES of `packet` are room for it.
  void Sign(std::span<std::byte> packet) const;

 private:
  std::shared_ptr<const mlnet_key> key_;
  mlnet_mac_input hop_{};  // the addresses
  bool is_ipv6_;
};

}  // namespace mlnet::wire
