// SPDX-License-Identifier: Apache-2.0
// The real mlnetd of every host: its configuration, its start, and the wait until it answers.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "mlnet/error.h"
#include "process.h"
#include "state.h"

namespace mlnet::lab {

/// mlnetd beside this program, or on $PATH.
Result<std::filesystem::path> FindDaemon();

/// The TOML text of `host`'s mlnetd.
std::string DaemonConfig(const Paths& paths, const Topology& topology, const Host& host);

Result<ProcessId> StartHostDaemon(const Paths& paths, const Topology& topology, const Host& host,
                                  const std::filesystem::path& program);

/// Returns when the daemon answers `status`. An early exit or the timeout is an error with the end of its
/// log.
Result<void> WaitUntilReady(const Paths& paths, const Host& host, const ProcessId& id,
                            std::chrono::milliseconds timeout, const std::atomic<bool>& stop);

/// One call to the host's daemon.
Result<Json> CallDaemon(const Paths& paths, const Host& host, const std::string& method, const Json& params);

}  // namespace mlnet::lab
