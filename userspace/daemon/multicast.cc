// SPDX-License-Identifier: Apache-2.0
#include "daemon/multicast.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/errno_error.h"
#include "base/ip_address.h"
#include "wire/packet.h"

namespace mlnet::daemon {
namespace {

constexpr int kHops = 32;  // groups are administratively scoped; routers decide the rest

Result<IpAddress> Address(const std::string& text) {
  const auto address = IpAddress::Parse(text);
  if (!address) return Err(ErrorCode::kInvalidArgument, "'" + text + "' is no IP address");
  return *address;
}

int Join(int socket, const IpAddress& group, int ifindex) {
  if (group.IsIpv6()) {
    ipv6_mreq request{};
    std::memcpy(&request.ipv6mr_multiaddr, group.bytes().data(), group.bytes().size());
    request.ipv6mr_interface = static_cast<unsigned>(ifindex);
    return ::setsockopt(socket, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &request, sizeof(request));
  }
  ip_mreqn request{};
  std::memcpy(&request.imr_multiaddr, group.bytes().data(), group.bytes().size());
  request.imr_ifindex = ifindex;
  return ::setsockopt(socket, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof(request));
}

// Multicast leaves by that NIC, and does not come back to this host.
int SetMulticast(int socket, bool is_ipv6, int ifindex) {
  const int loop = 0;
  if (is_ipv6) {
    return ::setsockopt(socket, IPPROTO_IPV6, IPV6_MULTICAST_IF, &ifindex, sizeof(ifindex)) |
           ::setsockopt(socket, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, &loop, sizeof(loop)) |
           ::setsockopt(socket, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &kHops, sizeof(kHops));
  }
  ip_mreqn via{};
  via.imr_ifindex = ifindex;
  return ::setsockopt(socket, IPPROTO_IP, IP_MULTICAST_IF, &via, sizeof(via)) |
         ::setsockopt(socket, IPPROTO_IP, IP_MULTICAST_LOOP, &loop, sizeof(loop)) |
         ::setsockopt(socket, IPPROTO_IP, IP_MULTICAST_TTL, &kHops, sizeof(kHops));
}

}  // namespace

Result<Membership> Membership::Take(const std::string& group, int ifindex) {
  const auto address = Address(group);
  if (!address) return tl::make_unexpected(address.error());
  Fd socket(::socket(address->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return tl::make_unexpected(ErrnoError("socket(UDP)", errno));
  if (Join(socket.get(), *address, ifindex) != 0) {
    return tl::make_unexpected(ErrnoError("join multicast group " + group, errno));
  }
  return Membership(std::move(socket));
}

Result<void> SendPing(const Ping& ping) {
  const auto from = Address(ping.from), to = Address(ping.group);
  if (!from) return tl::make_unexpected(from.error());
  if (!to) return tl::make_unexpected(to.error());
  const Fd socket(::socket(from->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return tl::make_unexpected(ErrnoError("socket(UDP)", errno));
  const SocketAddress own = from->Socket(0), peer = to->Socket(ping.port);
  if (::bind(socket.get(), own.get(), own.bytes) != 0 || SetMulticast(socket.get(), from->IsIpv6(), ping.ifindex) != 0) {
    return tl::make_unexpected(ErrnoError("multicast socket on " + ping.from, errno));
  }
  mlnet_hdr header{};
  header.version_type = wire::VersionType(MLNET_T_PING);
  header.job = ping.job;
  header.epoch = ping.epoch;
  header.tree = ping.tree;
  header.child = MLNET_CHILD_ALL;
  header.flags = MLNET_F_NO_PAYLOAD;
  wire::SetSeq(header, ping.nonce);
  std::optional<wire::Signer> signer;
  if (ping.key) signer.emplace(ping.key, from->mapped(), to->mapped());
  std::array<std::byte, wire::kOverheadBytes + MLNET_MAC_BYTES> bytes;
  const size_t length = wire::Seal(header, {}, mlnet_trailer{}, bytes, signer ? &*signer : nullptr);
  if (::sendto(socket.get(), bytes.data(), length, 0, peer.get(), peer.bytes) < 0) {
    return tl::make_unexpected(ErrnoError("send to multicast group " + ping.group, errno));
  }
  return {};
}

}  // namespace mlnet::daemon
