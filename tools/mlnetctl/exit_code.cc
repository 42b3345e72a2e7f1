// SPDX-License-Identifier: Apache-2.0
#include "mlnetctl/exit_code.h"

namespace mlnet::ctl {

ExitCode ExitCodeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return kExitUsage;
    case ErrorCode::kPermission:
      return kExitPermission;
    case ErrorCode::kUnsupported:
      return kExitUnsupported;
    case ErrorCode::kConflict:
      return kExitConflict;
    case ErrorCode::kTimeout:
      return kExitTimeout;
    case ErrorCode::kUnavailable:
    case ErrorCode::kMismatch:
    case ErrorCode::kRankLost:
    case ErrorCode::kProtocol:
    case ErrorCode::kSystem:
    case ErrorCode::kCancelled:
      return kExitFailed;
  }
  return kExitFailed;
}

const char* const kExitCodeHelp =
    "Exit codes:\n"
    "  0  ok\n"
    "  1  operation failed\n"
    "  2  usage\n"
    "  3  daemon not reachable\n"
    "  4  permission or capability missing\n"
    "  5  not supported by kernel or NIC\n"
    "  6  conflict (another XDP program, name taken)\n"
    "  7  timeout\n"
    "  8  degraded (status only)\n"
    "  130, 143  ended by a signal";

}  // namespace mlnet::ctl
