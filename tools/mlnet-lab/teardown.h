// SPDX-License-Identifier: Apache-2.0
// Removes a lab, whatever state it is in, and nothing else.
#pragma once

#include "mlnet/error.h"
#include "state.h"

namespace mlnet::lab {

/// True when anything of the lab exists.
bool AnythingLeft(const Paths& paths);

/// Ends the lab's daemons and every process in its namespaces; removes namespaces, pins and folder. Goes on
/// after an error and reports the first.
Result<void> TearDown(const Paths& paths);

}  // namespace mlnet::lab
