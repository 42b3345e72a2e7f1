// SPDX-License-Identifier: Apache-2.0
// An address of either family. IPv4 is mapped (::ffff:a.b.c.d), as in mlnet_addr of the job table.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace mlnet {

/// What bind, connect and sendto take.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

class IpAddress {
 public:
  using Mapped = std::array<uint8_t, 16>;  // network order

  IpAddress() = default;  // none
  explicit IpAddress(const Mapped& mapped) : mapped_(mapped) {}
  /// "10.0.0.1", "fd77::1"; no zone, no brackets.
  static std::optional<IpAddress> Parse(const std::string& text);
  /// 4 or 16 bytes in network order; none for any other number of them.
  static IpAddress FromBytes(std::span<const uint8_t> bytes);
  /// None for anything but AF_INET and AF_INET6.
  static IpAddress From(const sockaddr* address);

  bool IsSet() const { return mapped_ != Mapped{}; }
  bool IsIpv6() const;
  bool IsMulticast() const;
  bool IsLinkLocal() const;  // means nothing without an interface
  int family() const { return IsIpv6() ? AF_INET6 : AF_INET; }
  const Mapped& mapped() const { return mapped_; }
  /// 4 or 16, as netlink and the IP header have them.
  std::span<const uint8_t> bytes() const { return std::span(mapped_).subspan(IsIpv6() ? 0 : 12); }
  SocketAddress Socket(uint16_t port) const;
  std::string ToString() const;
  /// "10.0.0.1:80", "[fd77::1]:80".
  std::string WithPort(uint16_t port) const;
  /// Whether both have the same first `prefix` bits, in the same family.
  bool IsInNetwork(const IpAddress& other, int prefix) const;

  bool operator==(const IpAddress&) const = default;

 private:
  Mapped mapped_{};
};

}  // namespace mlnet
