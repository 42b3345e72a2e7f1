// SPDX-License-Identifier: Apache-2.0
// What one user may have on one host ([quota] in mlnetd.toml). Users are those of the ranks' processes.
#pragma once

#include <string>
#include <vector>

#include "control/config.h"
#include "mlnet/error.h"

namespace mlnet::control {

/// What a job that is there already takes of this host.
struct Holder {
  std::string job;
  uint32_t uid = 0;
  uint32_t slots = 0;
};

/// Whether a user may have ranks of one more job on `host`; an error names the limit and what to change.
Result<void> CheckJobQuota(const Quota& quota, const std::string& host, const Holder& wanted, const std::vector<Holder>& holders);
/// Whether a job may be summed here with so many slots.
Result<void> CheckSlotQuota(const Quota& quota, const std::string& host, const Holder& wanted, const std::vector<Holder>& holders);

/// Slots that a job takes on a host: of all trees that it sums there.
uint32_t SlotsHeld(const Plan& plan, const std::string& host);

}  // namespace mlnet::control
