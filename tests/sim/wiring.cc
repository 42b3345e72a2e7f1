// SPDX-License-Identifier: Apache-2.0
#include "sim/wiring.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "mlnet/wire.h"

namespace mlnet::sim {

test::Mac Wiring::MacOf(int host) { return {0x02, 0, 0, 0, 0, static_cast<uint8_t>(host + 1)}; }
test::Address Wiring::IpOf(int host) { return test::Ip("192.0.2." + std::to_string(host + 1)); }
test::Address Wiring::LocalIp() { return test::Ip("169.254.28.12"); }
test::Address Wiring::GroupIp() { return test::Ip("239.77.1.7"); }

Wiring::Wiring(int hosts) {
  for (int h = 0; h < hosts; ++h) ips_.push_back(IpOf(h));
}

std::span<const uint8_t> Wiring::FrameOf(int from, int to, std::span<const std::byte> packet) {
  const uint64_t key = packet.size() << 32 | static_cast<uint64_t>(from) << 16 | static_cast<uint64_t>(to);
  test::Bytes& front = fronts_[key];
  if (front.empty()) {
    test::Frame addresses;
    addresses.saddr = ips_[static_cast<size_t>(from)];
    addresses.daddr = from == to ? LocalIp() : ips_[static_cast<size_t>(to)];
    addresses.tos = 2;  // ECT(0), as UdpTransport sends
    addresses.src_mac = MacOf(from);
    addresses.dst_mac = MacOf(to);
    addresses.words.resize((packet.size() - sizeof(mlnet_hdr) - sizeof(mlnet_trailer)) / 8);
    front = addresses.Build();
    front.resize(front.size() - packet.size());
  }
  frame_.resize(front.size() + packet.size());
  std::memcpy(frame_.data(), front.data(), front.size());
  std::memcpy(frame_.data() + front.size(), packet.data(), packet.size());
  return frame_;
}

int Wiring::ReceiverOf(std::span<const uint8_t> frame) const {
  const test::Address address = test::Destination(frame);
  if (address == group_) return kGroup;
  const auto found = std::find(ips_.begin(), ips_.end(), address);
  return found == ips_.end() ? kNobody : static_cast<int>(found - ips_.begin());
}

}  // namespace mlnet::sim
