// SPDX-License-Identifier: Apache-2.0
// Addresses of the simulated hosts, and what stands around a packet on their wires.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "harness/frame.h"

namespace mlnet::sim {

class Wiring {
 public:
  static test::Address IpOf(int host);
  static test::Mac MacOf(int host);
  /// The aggregator of each host, behind its veth.
  static test::Address LocalIp();
  static test::Address GroupIp();

  explicit Wiring(int hosts);

  /// The frame that carries a rank's packet to the node at `to`, which may be its own host's. Valid until the next call.
  std::span<const uint8_t> FrameOf(int from, int to, std::span<const std::byte> packet);

  static constexpr int kGroup = -1;
  static constexpr int kNobody = -2;
  /// Whose address the frame goes to.
  int ReceiverOf(std::span<const uint8_t> frame) const;

 private:
  std::vector<test::Address> ips_;
  const test::Address group_ = GroupIp();
  std::unordered_map<uint64_t, test::Bytes> fronts_;  // everything before the packet, by hosts and length
  test::Bytes frame_;
};

}  // namespace mlnet::sim
