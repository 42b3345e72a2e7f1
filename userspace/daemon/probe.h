// SPDX-License-Identifier: Apache-2.0
// What this kernel and this process can do for mlnet.
#pragma once

#include "control/model.h"
#include "mlnet/error.h"

namespace mlnet::daemon {

/// kPermission names the capabilities that this process lacks.
Result<void> CheckCapabilities();

/// mlnet.probe/1.
control::Json ProbeKernel(const std::string& pin_root, control::Json ifaces);

}  // namespace mlnet::daemon
