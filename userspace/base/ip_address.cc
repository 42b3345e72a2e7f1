// SPDX-License-Identifier: Apache-2.0
#include "base/ip_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace mlnet {
namespace {

constexpr std::array<uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

IpAddress::Mapped MapIpv4(const void* network_order) {
  IpAddress::Mapped mapped{};
  std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), mapped.begin());
  std::memcpy(&mapped[12], network_order, 4);
  return mapped;
}

}  // namespace

std::optional<IpAddress> IpAddress::Parse(const std::string& text) {
  if (text.find('\0') != std::string::npos) return std::nullopt;  // inet_pton would read what is before it
  in_addr ipv4{};
  if (::inet_pton(AF_INET, text.c_str(), &ipv4) == 1) return IpAddress(MapIpv4(&ipv4));
  Mapped mapped{};
  if (::inet_pton(AF_INET6, text.c_str(), mapped.data()) != 1) return std::nullopt;
  return IpAddress(mapped);
}

IpAddress IpAddress::FromBytes(std::span<const uint8_t> bytes) {
  Mapped mapped{};
  if (bytes.size() == 4) return IpAddress(MapIpv4(bytes.data()));
  if (bytes.size() == mapped.size()) std::copy(bytes.begin(), bytes.end(), mapped.begin());
  return IpAddress(mapped);
}

IpAddress IpAddress::From(const sockaddr* address) {
  Mapped mapped{};
  if (address->sa_family == AF_INET) return IpAddress(MapIpv4(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr));
  if (address->sa_family == AF_INET6) {
    std::memcpy(mapped.data(), &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, mapped.size());
  }
  return IpAddress(mapped);
}

bool IpAddress::IsIpv6() const { return IsSet() && !std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), mapped_.begin()); }

bool IpAddress::IsMulticast() const { return IsIpv6() ? mapped_[0] == 0xff : mapped_[12] >> 4 == 0xe; }

bool IpAddress::IsLinkLocal() const {
  return IsIpv6() ? mapped_[0] == 0xfe && mapped_[1] >> 6 == 2 : mapped_[12] == 169 && mapped_[13] == 254;
}

SocketAddress IpAddress::Socket(uint16_t port) const {
  SocketAddress out;
  if (IsIpv6()) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    std::memcpy(&address.sin6_addr, mapped_.data(), mapped_.size());
    std::memcpy(&out.storage, &address, sizeof(address));
    out.bytes = sizeof(address);
    return out;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  std::memcpy(&address.sin_addr, &mapped_[12], 4);
  std::memcpy(&out.storage, &address, sizeof(address));
  out.bytes = sizeof(address);
  return out;
}

std::string IpAddress::ToString() const {
  if (!IsSet()) return "";
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(family(), bytes().data(), text, sizeof(text));
  return text;
}

std::string IpAddress::WithPort(uint16_t port) const {
  return (IsIpv6() ? "[" + ToString() + "]:" : ToString() + ":") + std::to_string(port);
}

bool IpAddress::IsInNetwork(const IpAddress& other, int prefix) const {
  const auto own = bytes(), others = other.bytes();
  if (!IsSet() || IsIpv6() != other.IsIpv6() || prefix < 0 || static_cast<size_t>(prefix) > 8 * own.size()) return false;
  const auto whole = static_cast<size_t>(prefix / 8);
  if (!std::equal(own.begin(), own.begin() + static_cast<long>(whole), others.begin())) return false;
  return prefix % 8 == 0 || (own[whole] ^ others[whole]) >> (8 - prefix % 8) == 0;
}

}  // namespace mlnet
