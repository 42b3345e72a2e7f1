// SPDX-License-Identifier: Apache-2.0
// Keys of jobs whose packets carry a tag: made where the job is planned, carried by its record in the store, used by
// the kernels of its hosts and by its ranks. What hosts and ranks use is derived from it, for one epoch.
#pragma once

#include <memory>
#include <string>

#include "control/model.h"
#include "wire/mac.h"

namespace mlnet::daemon {

/// What the job's record gets: random, or empty where `spec` asks for no tags.
Result<std::string> MakeJobKey(const control::JobSpec& spec);

/// Null: the job's packets have no tag.
std::shared_ptr<const mlnet_key> KeyOf(const control::JobView& view);

}  // namespace mlnet::daemon
