// SPDX-License-Identifier: Apache-2.0
#include "control/priority.h"

#include <algorithm>

namespace mlnet::control {

Marks MarksOf(const DscpTable& dscp, uint32_t ceiling, const Grant& grant) {
  Marks marks{};
  for (uint32_t c = 0; c < marks.size(); ++c) {
    const uint32_t granted = std::min(c, ceiling);
    marks[c] = grant.dscp >= 0 ? mlnet_mark{static_cast<uint8_t>(grant.dscp << 2), MLNET_PRIORITY_WAITS}
                               : mlnet_mark{static_cast<uint8_t>(dscp.at(granted) << 2), static_cast<uint8_t>(granted)};
  }
  return marks;
}

bool IsSame(const Marks& a, const Marks& b) {
  return std::equal(a.begin(), a.end(), b.begin(),
                    [](const mlnet_mark& x, const mlnet_mark& y) { return x.tos == y.tos && x.priority == y.priority; });
}

}  // namespace mlnet::control
