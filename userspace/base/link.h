// SPDX-License-Identifier: Apache-2.0
// A network interface as the kernel describes it, as far as it matters for where XDP can run. Plain values, so
// that what follows from them can be decided, and tested, for kinds that this kernel does not have.
#pragma once

#include <cstdint>
#include <string>

namespace mlnet {

struct Link {
  int ifindex = 0;
  std::string name;
  std::string kind{};  // "bond", "vlan", "veth", ...; empty: a NIC's own driver
  int master = 0;    // ifindex of the bond, bridge, ... that it belongs to
  int below = 0;     // ifindex of what it is on, in this namespace: of a VLAN its parent
  bool is_loopback = false;
  uint16_t vlan_id = 0;   // of a VLAN
  uint8_t bond_mode = 0;  // of a bond, as in <linux/if_bonding.h>
};

}  // namespace mlnet
