// SPDX-License-Identifier: Apache-2.0
#include "mlnet/error.h"

#include "base/errno_error.h"

#include <cerrno>
#include <cstring>

namespace mlnet {

const char* ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "E_INVALID_ARGUMENT";
    case ErrorCode::kUnavailable: return "E_UNAVAILABLE";
    case ErrorCode::kPermission: return "E_PERMISSION";
    case ErrorCode::kUnsupported: return "E_UNSUPPORTED";
    case ErrorCode::kConflict: return "E_CONFLICT";
    case ErrorCode::kTimeout: return "E_TIMEOUT";
    case ErrorCode::kMismatch: return "E_MISMATCH";
    case ErrorCode::kRankLost: return "E_RANK_LOST";
    case ErrorCode::kProtocol: return "E_PROTOCOL";
    case ErrorCode::kSystem: return "E_SYSTEM";
    case ErrorCode::kCancelled: return "E_CANCELLED";
  }
  return "E_SYSTEM";
}

std::optional<ErrorCode> ErrorCodeFromName(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kCancelled); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    if (name == ErrorCodeName(code)) return code;
  }
  return std::nullopt;
}

std::string Error::ToString() const {
  std::string text = std::string(ErrorCodeName(code)) + ": " + message;
  if (!hint.empty()) text += " (" + hint + ")";
  return text;
}

Error ErrnoError(const std::string& what, int err, std::string hint) {
  const ErrorCode code = (err == EPERM || err == EACCES)              ? ErrorCode::kPermission
                         : (err == EBUSY || err == EEXIST)            ? ErrorCode::kConflict
                         : (err == EOPNOTSUPP || err == ENOSYS)       ? ErrorCode::kUnsupported
                         : (err == ENOENT || err == ECONNREFUSED)     ? ErrorCode::kUnavailable
                                                                      : ErrorCode::kSystem;
  return Error{code, what + ": " + std::strerror(err), std::move(hint)};
}

}  // namespace mlnet
