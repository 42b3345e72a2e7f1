// SPDX-License-Identifier: Apache-2.0
#include "wire/verdicts.h"

#include <array>

namespace mlnet::wire {
namespace {

constexpr const char* ActionName(xdp_action action) {
  switch (action) {
    case XDP_ABORTED: return "ABORTED";
    case XDP_DROP: return "DROP";
    case XDP_PASS: return "PASS";
    case XDP_TX: return "TX";
    case XDP_REDIRECT: return "REDIRECT";
  }
  return "?";
}

constexpr std::array<VerdictInfo, MLNET_V_COUNT> kVerdicts = {{
#define MLNET_X(name, action, help) VerdictInfo{#name, ActionName(action), help},
    MLNET_VERDICTS(MLNET_X)
#undef MLNET_X
}};

}  // namespace

const VerdictInfo& VerdictOf(unsigned verdict) { return kVerdicts[verdict]; }

}  // namespace mlnet::wire
