// SPDX-License-Identifier: Apache-2.0
// Records as the store gives them back: read whole, or refused with what is wrong. A daemon acts on what it reads, so all that
// its other parts take for granted of a record is looked at here, once: no number that wrapped or lost its fraction, no index
// that points nowhere, no tree with a loop.
// Not looked at: what only misleads. Whoever can write to the store decides about all jobs (daemon/SECURITY.md).
#pragma once

#include <string_view>

#include "control/model.h"
#include "mlnet/error.h"

namespace mlnet::control {

// kProtocol in all of these. Members that this version does not know are left out.
Result<JobView> ReadJobView(std::string_view text);
Result<HostRecord> ReadHostRecord(std::string_view text);
/// What ranks and hosts count (Store::Counters): an object, the numbers of which are where readers look for them.
Result<Json> ReadCounters(std::string_view text);

/// What else must hold between the members of a record that has the right types.
Result<void> CheckRecord(const JobView& view);
Result<void> CheckRecord(const HostRecord& host);

}  // namespace mlnet::control
