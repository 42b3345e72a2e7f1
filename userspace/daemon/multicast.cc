// SPDX-License-Identifier: Apache-2.0
#include "daemon/multicast.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/errno_error.h"
#include "wire/packet.h"

namespace mlnet::daemon {
namespace {

constexpr int kHops = 32;  // groups are administratively scoped; routers decide the rest

in_addr Address(const std::string& text) {
  in_addr address{};
  inet_pton(AF_INET, text.c_str(), &address);
  return address;
}

}  // namespace

Result<Membership> Membership::Take(const std::string& group, int ifindex) {
  Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return tl::make_unexpected(ErrnoError("socket(AF_INET)", errno));
  ip_mreqn request{};
  request.imr_multiaddr = Address(group);
  request.imr_ifindex = ifindex;
  if (::setsockopt(socket.get(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof(request)) != 0) {
    return tl::make_unexpected(ErrnoError("join multicast group " + group, errno));
  }
  return Membership(std::move(socket));
}

Result<void> SendPing(const Ping& ping) {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return tl::make_unexpected(ErrnoError("socket(AF_INET)", errno));
  sockaddr_in from{};
  from.sin_family = AF_INET;
  from.sin_addr = Address(ping.from);
  ip_mreqn via{};
  via.imr_address = from.sin_addr;
  const int loop = 0;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&from), sizeof(from)) != 0 ||
      ::setsockopt(socket.get(), IPPROTO_IP, IP_MULTICAST_IF, &via, sizeof(via)) != 0 ||
      ::setsockopt(socket.get(), IPPROTO_IP, IP_MULTICAST_LOOP, &loop, sizeof(loop)) != 0 ||
      ::setsockopt(socket.get(), IPPROTO_IP, IP_MULTICAST_TTL, &kHops, sizeof(kHops)) != 0) {
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
  std::array<std::byte, wire::kOverheadBytes> bytes;
  const size_t length = wire::Seal(header, {}, mlnet_trailer{}, bytes);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr = Address(ping.group);
  to.sin_port = htons(ping.port);
  if (::sendto(socket.get(), bytes.data(), length, 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) < 0) {
    return tl::make_unexpected(ErrnoError("send to multicast group " + ping.group, errno));
  }
  return {};
}

}  // namespace mlnet::daemon
