// SPDX-License-Identifier: Apache-2.0
// The link address that packets to another host need: of the host itself, or of the router on the way.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace mlnet::datapath {

/// As the kernel knows it now; nullopt: not yet, a packet to the address makes it find out.
std::optional<std::array<uint8_t, 6>> NextHopMac(const std::string& address);

}  // namespace mlnet::datapath
