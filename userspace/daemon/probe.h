// SPDX-License-Identifier: Apache-2.0
// What this kernel and this process can do for mlnet.
#pragma once

#include "control/model.h"

namespace mlnet::daemon {

/// mlnet.probe/1.
control::Json ProbeKernel(control::Json ifaces);

}  // namespace mlnet::daemon
