// SPDX-License-Identifier: Apache-2.0
// Open MPI over the lab's hosts, which are namespaces: it wants a host name per host and a remote shell.
#pragma once

#include <string>
#include <vector>

#include "perf_turn.h"

namespace mlnet::lab {

/// The command line of mpirun, to be run on the turn's first host; writes host file and remote shell into the
/// turn's folder.
Result<std::vector<std::string>> MpirunCommand(const Paths& paths, const Turn& turn,
                                               const std::string& program);

}  // namespace mlnet::lab
