// SPDX-License-Identifier: Apache-2.0
// Child processes: run one to its end, start one as a daemon, and end one without ever hitting another.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "mlnet/error.h"

namespace mlnet::lab {

/// Runs argv with `input` on stdin; its stdout. A failure carries the end of stderr.
Result<std::string> Run(const std::vector<std::string>& argv, const std::string& input = {});

/// A process by identity: the pid alone may have been given to somebody else in the meantime.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time = 0;  // field 22 of /proc/PID/stat
};

std::optional<ProcessId> IdentifyProcess(pid_t pid);
bool IsAlive(const ProcessId& id);

/// Starts argv in network namespace file `netns`, in a session of its own, output appended to `log_path`;
/// writes `pidfile` ("PID START_TIME") before the program runs.
Result<ProcessId> StartDaemon(const std::vector<std::string>& argv, const std::string& netns,
                              const std::string& log_path, const std::string& pidfile);

/// nullopt when the file is missing or the process is gone.
std::optional<ProcessId> ReadPidfile(const std::string& pidfile);

/// SIGTERM to all, SIGKILL to those that are left after `grace`; returns when all are gone.
void EndProcesses(const std::vector<ProcessId>& ids, std::chrono::milliseconds grace);

}  // namespace mlnet::lab
