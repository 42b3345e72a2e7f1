// SPDX-License-Identifier: Apache-2.0
// Several NICs per host: where the hosts of a job have one each in several networks, each network is a rail, and the
// job has trees on all of them, with shares as the rails' rates are.
#pragma once

#include <cstdint>
#include <vector>

#include "control/model.h"

namespace mlnet::control {

struct Rail {
  std::vector<const IfaceRecord*> ifaces;  // of each host
  uint64_t rate_bps = 0;                   // of the slowest of them; 0: not known
};

/// The first is `first`; the others are the further networks in which all of `hosts` have an attached interface, which
/// those from `first_spare` on offer to others.
std::vector<Rail> FindRails(const std::vector<const HostRecord*>& hosts, const std::vector<const IfaceRecord*>& first,
                            size_t first_spare);

/// Of large calls, the fastest rail's being 1; all the same where one is not known.
std::vector<double> SharesOf(const std::vector<Rail>& rails);

}  // namespace mlnet::control
