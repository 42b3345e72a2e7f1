// SPDX-License-Identifier: Apache-2.0
#include "transport/udp_transport.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/ip_address.h"

namespace mlnet::worker {
namespace {

constexpr int kSendBufferBytes = 4 << 20;  // the kernel grants what net.core.wmem_max allows
constexpr int kFullPatienceMs = 5;         // for a full send buffer; after that the packets count as lost

// What queues may mark instead of drop: the window heeds it (send_window.h). RFC 3168's ECT(0).
constexpr int kEcnCapable = 2;

// DSCP by class: best effort, then CS1 to CS7.
constexpr std::array<int, MLNET_CLASSES_MAX> kDscp = {0, 8, 16, 24, 32, 40, 48, 56};

Result<IpAddress> Address(const std::string& text) {
  const auto address = IpAddress::Parse(text);
  if (!address) return Err(ErrorCode::kProtocol, "mlnetd gave '" + text + "' where an IP address belongs");
  return *address;
}

int MarkDscp(int fd, bool is_ipv6, int dscp) {
  const int tos = dscp << 2 | kEcnCapable;  // the whole byte, DSCP in its upper six bits
  return is_ipv6 ? ::setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos))
                 : ::setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
}

int ForbidFragments(int fd, bool is_ipv6) {
  const int discover = is_ipv6 ? IPV6_PMTUDISC_DO : IP_PMTUDISC_DO;
  return is_ipv6 ? ::setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &discover, sizeof(discover))
                 : ::setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof(discover));
}

Result<void> SetIpOptions(int fd, bool is_ipv6, int dscp) {
  if (MarkDscp(fd, is_ipv6, dscp) != 0 || ForbidFragments(fd, is_ipv6) != 0) {
    return tl::make_unexpected(ErrnoError("set options of the data socket", errno));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<UdpTransport>> UdpTransport::Open(const std::vector<UdpEndpoints>& endpoints,
                                                         const EngineConfig& config, Inbox inbox) {
  std::unique_ptr<UdpTransport> transport(new UdpTransport(std::move(inbox)));
  transport->flows_.resize(FlowOf(config.trees.size(), 0));
  for (size_t tree = 0; tree < config.trees.size(); ++tree) {
    for (int c = 0; c < MLNET_CLASSES_MAX; ++c) {
      if (!config.trees[tree].pools[static_cast<size_t>(c)].is_open) continue;
      auto flow = OpenFlow(endpoints[tree], c);
      if (!flow) return tl::make_unexpected(flow.error());
      transport->flows_[FlowOf(tree, c)] = std::move(*flow);
    }
  }
  return transport;
}

Result<UdpTransport::Flow> UdpTransport::OpenFlow(const UdpEndpoints& endpoints, int traffic_class) {
  auto local = Address(endpoints.local_address);
  if (!local) return tl::make_unexpected(local.error());
  auto remote = Address(endpoints.aggregator_address);
  if (!remote) return tl::make_unexpected(remote.error());
  if (local->IsIpv6() != remote->IsIpv6()) {
    return Err(ErrorCode::kProtocol, "mlnetd gave addresses of two families, " + local->ToString() + " and " + remote->ToString());
  }
  Fd socket(::socket(local->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return tl::make_unexpected(ErrnoError("socket(UDP)", errno));
  const int fd = socket.get();
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
  if (auto ok = SetIpOptions(fd, local->IsIpv6(), kDscp[static_cast<size_t>(traffic_class)]); !ok) return tl::make_unexpected(ok.error());
  const SocketAddress from = local->Socket(0), to = remote->Socket(endpoints.port);
  if (::bind(fd, from.get(), from.bytes) != 0) {
    return tl::make_unexpected(ErrnoError("bind the data socket to " + endpoints.local_address, errno));
  }
  if (::connect(fd, to.get(), to.bytes) != 0) {
    return tl::make_unexpected(
        ErrnoError("connect to the aggregator at " + endpoints.aggregator_address, errno));
  }
  return Flow{std::move(socket), remote->WithPort(endpoints.port), remote->IsIpv6()};
}

// A mark that cannot be set costs the priority on networks that know it, nothing else.
void UdpTransport::SetDscp(int dscp) {
  for (size_t flow = 0; flow < flows_.size(); ++flow) {
    if (!flows_[flow].socket) continue;
    MarkDscp(flows_[flow].socket.get(), flows_[flow].is_ipv6, dscp >= 0 ? dscp : kDscp[flow % MLNET_CLASSES_MAX]);
  }
}

Result<void> UdpTransport::Send(size_t flow, std::span<const std::byte> packets, size_t packet_bytes) {
  if (!has_gso_) return SendOneByOne(flows_[flow], packets, packet_bytes);
  return SendBatch(flows_[flow], packets, packet_bytes);
}

Error UdpTransport::SendError(const Flow& flow, int error_number) {
  if (error_number == ECONNREFUSED) {
    return {ErrorCode::kUnavailable, flow.peer + " answers 'port unreachable': no mlnet program is attached there",
            "mlnetctl iface attach on the aggregator"};
  }
  return ErrnoError("send to " + flow.peer, error_number);
}

Result<void> UdpTransport::SendBatch(const Flow& flow, std::span<const std::byte> packets, size_t packet_bytes) {
  iovec vector{const_cast<std::byte*>(packets.data()), packets.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(uint16_t))> control{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (packets.size() > packet_bytes) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_UDP;
    header->cmsg_type = UDP_SEGMENT;
    header->cmsg_len = CMSG_LEN(sizeof(uint16_t));
    const auto segment = static_cast<uint16_t>(packet_bytes);
    std::memcpy(CMSG_DATA(header), &segment, sizeof(segment));
  }
  Result<void> outcome;
  Result<void> refused;  // ECONNREFUSED tells of an earlier packet; this one was not sent yet
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (::sendmsg(flow.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return refused;
    const int error_number = errno;
    outcome = tl::make_unexpected(SendError(flow, error_number));
    if (error_number == EAGAIN) {
      pollfd writable{flow.socket.get(), POLLOUT, 0};
      ::poll(&writable, 1, kFullPatienceMs);
    } else if (error_number == ECONNREFUSED) {
      refused = outcome;
    } else if ((error_number == EINVAL || error_number == EIO) && message.msg_control != nullptr) {
      has_gso_ = false;
      std::fprintf(stderr, "mlnet: UDP GSO refused (%s); sending packet by packet\n",
                   std::strerror(error_number));
      return SendOneByOne(flow, packets, packet_bytes);
    } else if (error_number != EINTR) {
      return outcome;
    }
  }
  return outcome;
}

Result<void> UdpTransport::SendOneByOne(const Flow& flow, std::span<const std::byte> packets, size_t packet_bytes) {
  std::array<iovec, kBatchPacketsMax> vectors{};
  std::array<mmsghdr, kBatchPacketsMax> messages{};
  unsigned count = 0;
  for (size_t at = 0; at < packets.size(); at += packet_bytes, ++count) {
    const auto packet = packets.subspan(at, std::min(packet_bytes, packets.size() - at));
    vectors[count] = {const_cast<std::byte*>(packet.data()), packet.size()};
    messages[count].msg_hdr.msg_iov = &vectors[count];
    messages[count].msg_hdr.msg_iovlen = 1;
  }
  Result<void> outcome, refused;  // as of a batch
  unsigned sent = 0;
  for (int failures = 0; sent < count && failures < 3;) {
    const int n = ::sendmmsg(flow.socket.get(), &messages[sent], count - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<unsigned>(n);
      continue;
    }
    const int error_number = errno;
    outcome = tl::make_unexpected(SendError(flow, error_number));
    if (error_number == ECONNREFUSED) refused = outcome;
    ++failures;
    pollfd writable{flow.socket.get(), POLLOUT, 0};
    if (error_number == EAGAIN) ::poll(&writable, 1, kFullPatienceMs);
  }
  return sent == count ? refused : outcome;
}

}  // namespace mlnet::worker
