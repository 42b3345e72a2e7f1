// SPDX-License-Identifier: Apache-2.0
#include "lab/capture.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>

#include <array>

namespace mlnet::test {
namespace {

constexpr size_t kIpAt = 14, kIpBytes = 20, kUdpAt = kIpAt + kIpBytes, kMlnetAt = kUdpAt + 8;

uint16_t Be16(const uint8_t* at) { return static_cast<uint16_t>(at[0] << 8 | at[1]); }

// RFC 1071: the sum over the header with its checksum is all ones.
bool IsChecksumRight(const uint8_t* header) {
  uint32_t sum = 0;
  for (size_t i = 0; i < kIpBytes; i += 2) sum += Be16(header + i);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

}  // namespace

Capture::Capture(const std::string& iface) : socket_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL))) {
  sockaddr_ll at{};
  at.sll_family = AF_PACKET;
  at.sll_protocol = htons(ETH_P_ALL);
  at.sll_ifindex = static_cast<int>(::if_nametoindex(iface.c_str()));
  EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0) << iface;
}

std::vector<Seen> Capture::Take() {
  std::vector<Seen> all;
  std::array<uint8_t, 2048> frame;
  for (;;) {
    sockaddr_ll from{};
    socklen_t bytes = sizeof(from);
    const ssize_t n = ::recvfrom(socket_.get(), frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&from), &bytes);
    if (n < 0) return all;
    if (static_cast<size_t>(n) < kMlnetAt + 8 || Be16(&frame[12]) != ETH_P_IP || frame[kIpAt + 9] != IPPROTO_UDP) continue;
    Seen seen;
    seen.is_out = from.sll_pkttype == PACKET_OUTGOING;
    seen.tos = frame[kIpAt + 1];
    seen.is_checksum_right = IsChecksumRight(&frame[kIpAt]);
    seen.port = Be16(&frame[kUdpAt + 2]);
    seen.type = frame[kMlnetAt] & 0xf;
    seen.job = static_cast<uint16_t>(frame[kMlnetAt + 2] | frame[kMlnetAt + 3] << 8);
    seen.class_stream = frame[kMlnetAt + 7];
    all.push_back(seen);
  }
}

}  // namespace mlnet::test
