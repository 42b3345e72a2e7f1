// SPDX-License-Identifier: Apache-2.0
// Names, actions and help texts of the verdict table for user space.
#pragma once

#include "mlnet/verdict.h"

namespace mlnet::wire {

struct VerdictInfo {
  const char* name;    // "SUM_ADD"
  const char* action;  // "DROP"
  const char* help;
};

/// REQUIRES: verdict < MLNET_V_COUNT.
const VerdictInfo& VerdictOf(unsigned verdict);

}  // namespace mlnet::wire
