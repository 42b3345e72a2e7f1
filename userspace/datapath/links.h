// SPDX-License-Identifier: Apache-2.0
// All interfaces of this network namespace, by rtnetlink.
#pragma once

#include <vector>

#include "base/link.h"
#include "mlnet/error.h"

namespace mlnet::datapath {

Result<std::vector<Link>> ReadLinks();

}  // namespace mlnet::datapath
