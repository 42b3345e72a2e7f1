// SPDX-License-Identifier: Apache-2.0
#include "base/ip_address.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>

namespace mlnet {
namespace {

using ::testing::ElementsAre;

IpAddress Of(const std::string& text) {
  const auto address = IpAddress::Parse(text);
  EXPECT_TRUE(address.has_value()) << text;
  return address.value_or(IpAddress());
}

TEST(ip_address, reads_and_writes_both_families) {
  EXPECT_EQ(Of("10.0.0.1").ToString(), "10.0.0.1");
  EXPECT_EQ(Of("FD77:0::1").ToString(), "fd77::1");
  EXPECT_FALSE(Of("10.0.0.1").IsIpv6());
  EXPECT_TRUE(Of("::1").IsIpv6());
  EXPECT_EQ(Of("::ffff:10.0.0.1"), Of("10.0.0.1")) << "a mapped address is the IPv4 address";
  EXPECT_EQ(Of("10.0.0.1").WithPort(80), "10.0.0.1:80");
  EXPECT_EQ(Of("fd77::1").WithPort(80), "[fd77::1]:80");
  for (const char* wrong : {"", "10.0.0", "10.0.0.256", "fd77::1%eth0", "[fd77::1]", "fd77:::1", "host"}) {
    EXPECT_FALSE(IpAddress::Parse(wrong).has_value()) << wrong;
  }
  EXPECT_FALSE(IpAddress().IsSet());
  EXPECT_EQ(IpAddress().ToString(), "");
}

TEST(ip_address, bytes_are_those_of_the_family) {
  EXPECT_THAT(Of("10.1.2.3").bytes(), ElementsAre(10, 1, 2, 3));
  EXPECT_THAT(Of("10.1.2.3").mapped(), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3));
  for (const char* text : {"10.1.2.3", "fd77::3"}) EXPECT_EQ(IpAddress::FromBytes(Of(text).bytes()), Of(text));
  EXPECT_FALSE(IpAddress::FromBytes(Of("fd77::3").bytes().first(6)).IsSet());
  EXPECT_THAT(Of("fd77::102:3").bytes(), ElementsAre(0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 3));
}

TEST(ip_address, socket_addresses_go_there_and_back) {
  for (const char* text : {"10.1.2.3", "fd77::3"}) {
    const SocketAddress socket = Of(text).Socket(28012);
    EXPECT_EQ(IpAddress::From(socket.get()), Of(text));
    EXPECT_EQ(socket.storage.ss_family, Of(text).family());
    // The port is at the same place in both.
    EXPECT_EQ(reinterpret_cast<const sockaddr_in*>(socket.get())->sin_port, htons(28012));
  }
}

TEST(ip_address, kinds) {
  EXPECT_TRUE(Of("239.77.0.1").IsMulticast());
  EXPECT_TRUE(Of("ff15::1").IsMulticast());
  EXPECT_FALSE(Of("223.77.0.1").IsMulticast());
  EXPECT_FALSE(Of("fe80::1").IsMulticast());
  EXPECT_TRUE(Of("fe80::1").IsLinkLocal());
  EXPECT_TRUE(Of("febf::1").IsLinkLocal());
  EXPECT_FALSE(Of("fec0::1").IsLinkLocal());
  EXPECT_TRUE(Of("169.254.28.12").IsLinkLocal());
}

TEST(ip_address, networks_are_compared_to_the_bit) {
  EXPECT_TRUE(Of("10.0.3.1").IsInNetwork(Of("10.0.0.9"), 22));
  EXPECT_FALSE(Of("10.0.4.1").IsInNetwork(Of("10.0.0.9"), 22));
  EXPECT_TRUE(Of("fd77:0:0:1::1").IsInNetwork(Of("fd77:0:0:1:ffff::9"), 64));
  EXPECT_FALSE(Of("fd77:0:0:1::1").IsInNetwork(Of("fd77:0:0:3::9"), 63));
  EXPECT_TRUE(Of("fd77:0:0:1::1").IsInNetwork(Of("fd77:0:0:3::9"), 62));
  EXPECT_TRUE(Of("fd77::1").IsInNetwork(Of("fd77::1"), 128));
  EXPECT_FALSE(Of("fd77::1").IsInNetwork(Of("fd77::2"), 128));
  EXPECT_FALSE(Of("10.0.0.1").IsInNetwork(Of("::a00:1"), 8));
  EXPECT_FALSE(Of("10.0.0.1").IsInNetwork(Of("10.0.0.1"), 33));
}

}  // namespace
}  // namespace mlnet
