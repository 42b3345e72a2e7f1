// SPDX-License-Identifier: Apache-2.0
// What the kernel says about a network interface of this network namespace. By ioctl: /sys may show
// another namespace's interfaces.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "mlnet/error.h"

namespace mlnet::datapath {

struct Netdev {
  std::string name;
  int ifindex = 0;
  std::string driver;   // empty: unknown
  int mtu = 0;
  int speed_mbps = 0;   // 0: unknown
  std::string address;  // first IPv4 address, dotted; empty: none
  int prefix = 0;
  std::string address6;  // first IPv6 address that means something beyond the link and stays; empty: none
  int prefix6 = 0;
  bool is_up = false;
  std::array<uint8_t, 6> mac{};  // all 0: it has none
};

/// kUnavailable when there is no such interface; the hint lists those there are.
Result<Netdev> ReadNetdev(const std::string& name);

/// All interfaces but the loopback.
std::vector<std::string> NetdevNames();

}  // namespace mlnet::datapath
