// SPDX-License-Identifier: Apache-2.0
// The exit codes of mlnetctl: a promise to scripts. Append only.
#pragma once

#include "mlnet/error.h"

namespace mlnet::ctl {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,
  kExitUsage = 2,
  kExitUnreachable = 3,
  kExitPermission = 4,
  kExitUnsupported = 5,
  kExitConflict = 6,
  kExitTimeout = 7,
  kExitDegraded = 8,
};

/// For an error that the daemon answered, or that a command found itself. A daemon that cannot be
/// reached is kExitUnreachable, which only the caller of connect() can know.
ExitCode ExitCodeOf(ErrorCode code);

/// The table that --help prints.
extern const char* const kExitCodeHelp;

}  // namespace mlnet::ctl
