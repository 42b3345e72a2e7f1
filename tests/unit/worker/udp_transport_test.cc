// SPDX-License-Identifier: Apache-2.0
// Stage 6 over the loopback of a network namespace of its own: what arrives is what was laid end to end.
#include "transport/udp_transport.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "base/ip_address.h"

namespace mlnet::worker {
namespace {

class UdpTransportTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
      GTEST_SKIP() << "no network namespace: " << strerror(errno);
    }
    const Fd control(::socket(AF_INET, SOCK_DGRAM, 0));
    ifreq lo{};
    std::strcpy(lo.ifr_name, "lo");
    lo.ifr_flags = IFF_UP;
    ASSERT_EQ(::ioctl(control.get(), SIOCSIFFLAGS, &lo), 0) << strerror(errno);
    const SocketAddress any_port = IpAddress::Parse(GetParam())->Socket(0);
    receiver_ = Fd(::socket(any_port.get()->sa_family, SOCK_DGRAM, 0));
    ASSERT_EQ(::bind(receiver_.get(), any_port.get(), any_port.bytes), 0) << strerror(errno);
    address_ = any_port;
    ::getsockname(receiver_.get(), reinterpret_cast<sockaddr*>(&address_.storage), &address_.bytes);
    const int on = 1;
    ::setsockopt(receiver_.get(), IPPROTO_IP, IP_RECVTOS, &on, sizeof(on));
    ::setsockopt(receiver_.get(), IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof(on));
    const uint16_t port = ntohs(reinterpret_cast<const sockaddr_in*>(address_.get())->sin_port);  // the same place in both
    EngineConfig config;
    config.trees[0].pools[0].is_open = config.trees[0].pools[5].is_open = true;
    auto opened = UdpTransport::Open({{GetParam(), GetParam(), port}}, config, Inbox{});
    ASSERT_TRUE(opened.has_value()) << opened.error().ToString();
    transport_ = std::move(*opened);
  }

  std::vector<std::byte> Receive(int* tos = nullptr) {
    std::vector<std::byte> bytes(65536);
    alignas(cmsghdr) char control[64];
    iovec vector{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t n = ::recvmsg(receiver_.get(), &message, MSG_DONTWAIT);
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (tos != nullptr && n >= 0 && header != nullptr)
      *tos = *reinterpret_cast<const uint8_t*>(CMSG_DATA(header));
    bytes.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return bytes;
  }

  /// The kernel cuts no datagram whose checksum it is not to make (EINVAL): packets leave one by one from the next batch on.
  void RefuseSegmentation() const {
    const int on = 1;
    for (int fd = 3; fd < 1024; ++fd) {
      SocketAddress peer = address_;
      if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &peer.bytes) != 0 ||
          std::memcmp(peer.get(), address_.get(), address_.bytes) != 0) continue;
      ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_NO_CHECK, &on, sizeof(on)), 0);
      if (peer.get()->sa_family == AF_INET6) {
        ASSERT_EQ(::setsockopt(fd, SOL_UDP, UDP_NO_CHECK6_TX, &on, sizeof(on)), 0);
      }
    }
  }

  Fd receiver_;
  SocketAddress address_;
  std::unique_ptr<UdpTransport> transport_;
};

TEST_P(UdpTransportTest, a_batch_arrives_as_its_packets_the_last_one_shorter) {
  std::vector<std::byte> batch(3 * 1472 + 64);
  for (size_t i = 0; i < batch.size(); ++i) batch[i] = static_cast<std::byte>(i * 7 / 5);
  ASSERT_TRUE(transport_->Send(0, batch, 1472).has_value());
  for (size_t at = 0; at < batch.size(); at += 1472) {
    const auto packet = Receive();
    const size_t expected = std::min<size_t>(1472, batch.size() - at);
    ASSERT_EQ(packet.size(), expected);
    EXPECT_EQ(std::memcmp(packet.data(), batch.data() + at, expected), 0);
  }
  EXPECT_TRUE(Receive().empty());
}

TEST_P(UdpTransportTest, each_class_has_its_own_dscp) {
  const std::vector<std::byte> packet(64);
  int tos = -1;
  ASSERT_TRUE(transport_->Send(0, packet, 64).has_value());
  ASSERT_EQ(Receive(&tos).size(), 64u);
  EXPECT_EQ(tos, 2);  // ECT(0), RFC 3168: queues may mark it
  ASSERT_TRUE(transport_->Send(5, packet, 64).has_value());
  ASSERT_EQ(Receive(&tos).size(), 64u);
  EXPECT_EQ(tos >> 2, 40);  // CS5
}

TEST_P(UdpTransportTest, one_dscp_for_all_classes_and_back) {
  const std::vector<std::byte> packet(64);
  int tos = -1;
  transport_->SetDscp(1);
  for (const size_t flow : {0, 5}) {
    ASSERT_TRUE(transport_->Send(flow, packet, 64).has_value());
    ASSERT_EQ(Receive(&tos).size(), 64u);
    EXPECT_EQ(tos, 1 << 2 | 2);
  }
  transport_->SetDscp(-1);
  ASSERT_TRUE(transport_->Send(5, packet, 64).has_value());
  ASSERT_EQ(Receive(&tos).size(), 64u);
  EXPECT_EQ(tos >> 2, 40);
}

TEST_P(UdpTransportTest, what_leaves_at_the_second_try_is_not_reported_as_failed) {
  if (std::system("tc qdisc add dev lo root tbf rate 2gbit burst 256k limit 50m") != 0) {
    ASSERT_NE(::getuid(), 0u);  // a program in a user namespace has no rights there
    GTEST_SKIP() << "no link with a rate: needs root";
  }
  // 12 MB each way, more than a socket's buffer holds, over a link of 2 Gb/s: sends have to wait for room.
  const std::vector<std::byte> batch(44 * 1400);
  for (const char* way : {"one datagram for the kernel to cut", "packet by packet"}) {
    for (int i = 0; i < 200; ++i) {
      const auto sent = transport_->Send(0, batch, 1400);
      ASSERT_TRUE(sent.has_value()) << way << ", batch " << i << ": " << sent.error().ToString();
    }
    RefuseSegmentation();
  }
}

TEST_P(UdpTransportTest, a_closed_port_is_reported_with_what_to_do_and_later_packets_still_leave) {
  receiver_.Reset();
  const std::vector<std::byte> packet(64);
  EXPECT_TRUE(transport_->Send(0, packet, 64).has_value());
  // Its ICMP answer comes with the next one; where the kernel is busy, with a later one.
  Result<void> later;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (later && std::chrono::steady_clock::now() < deadline) later = transport_->Send(0, packet, 64);
  ASSERT_FALSE(later.has_value());
  EXPECT_NE(later.error().ToString().find("mlnetctl iface attach"), std::string::npos);

  receiver_ = Fd(::socket(address_.get()->sa_family, SOCK_DGRAM, 0));
  ASSERT_EQ(::bind(receiver_.get(), address_.get(), address_.bytes), 0);
  (void)transport_->Send(0, packet, 64);  // still reports the packet before
  EXPECT_EQ(Receive().size(), 64u);
}

INSTANTIATE_TEST_SUITE_P(families, UdpTransportTest, testing::Values("127.0.0.1", "::1"));

}  // namespace
}  // namespace mlnet::worker
