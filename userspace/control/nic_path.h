// SPDX-License-Identifier: Apache-2.0
// Where XDP meets the packets of an interface: a NIC's own driver on the NIC, a bond's on its members, a VLAN's
// only above the driver. A pure function of the interfaces, so kinds that this kernel lacks are tested too.
#pragma once

#include <string>
#include <vector>

#include "base/link.h"
#include "mlnet/error.h"

namespace mlnet::control {

struct NicPath {
  std::vector<std::string> devices;  // each carries the program: the members of a bond, else the interface itself
  std::string no_native;             // why only generic mode is possible; empty: the driver decides
  std::string instead;               // what makes native mode possible
};

/// The error says what the interface is and names the one to use instead.
Result<NicPath> FindNicPath(const std::vector<Link>& links, const std::string& name);

}  // namespace mlnet::control
