// SPDX-License-Identifier: Apache-2.0
// What the links carried so far, as their queues counted it: Ethernet frame bytes of every frame that left,
// those of the segments of a super-packet as well.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "mlnet/error.h"
#include "state.h"

namespace mlnet::lab {

struct Traffic {
  uint64_t bytes = 0;
  uint64_t packets = 0;
  uint64_t dropped = 0;  // by a full queue
};

struct LinkTraffic {
  std::optional<Traffic> tx;  // what the host or rack sends; nothing is known of a host without a rate
  Traffic rx;
};

/// By the name of host or rack.
Result<std::map<std::string, LinkTraffic>> ReadTraffic(const Paths& paths);

}  // namespace mlnet::lab
