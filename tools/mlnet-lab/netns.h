// SPDX-License-Identifier: Apache-2.0
// Network namespaces: enter, list and remove those of a lab. The mount namespace stays as it is, since
// `ip netns exec` would hide bpffs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mlnet/error.h"
#include "process.h"
#include "state.h"

namespace mlnet::lab {

/// Runs `body` with this thread inside namespace file `netns`, and returns to the old one.
Result<void> InNetns(const std::string& netns, const std::function<Result<void>()>& body);

/// Moves this process into namespace file `netns` for good.
Result<void> EnterNetns(const std::string& netns);

/// Names of the namespaces that exist and belong to the lab.
std::vector<std::string> ListNetns(const Paths& paths);

/// Processes whose main thread is in one of the lab's namespaces; never this process or its ancestors.
std::vector<ProcessId> ProcessesInside(const Paths& paths);

/// Removes the names; the kernel frees a namespace when its last user is gone.
Result<void> DeleteNetns(const std::vector<std::string>& names);

}  // namespace mlnet::lab
