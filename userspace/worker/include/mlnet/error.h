// SPDX-License-Identifier: Apache-2.0
// What can go wrong, as a value. Public functions return Result<T>; nothing in libmlnet throws.
// Propagate it (return tl::make_unexpected), handle it (switch on code), or show it (ToString).
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace mlnet {

enum class ErrorCode {
  kInvalidArgument,   // the caller passed something that can never work
  kUnavailable,       // no daemon, no aggregator: somebody must start something
  kPermission,        // a capability or a socket permission is missing
  kUnsupported,       // kernel, NIC, dtype or op cannot do this
  kConflict,          // busy NIC, name taken, another program attached
  kTimeout,           // a deadline passed; the message names who is missing
  kMismatch,          // ranks called different collectives
  kRankLost,          // a member of the job died or left
  kProtocol,          // the other side answered something unintelligible
  kSystem,            // a system call failed; the message has errno's text
  kCancelled,         // the communicator was closed
};

/// Short name as printed in JSON and logs, for example "E_TIMEOUT".
const char* ErrorCodeName(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kSystem;
  std::string message;  // what failed, on what, what was the cause
  std::string hint;     // what to do about it; may be empty

  /// "E_TIMEOUT: message (hint)".
  std::string ToString() const;
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> Err(ErrorCode code, std::string message, std::string hint = {}) {
  return tl::make_unexpected(Error{code, std::move(message), std::move(hint)});
}

}  // namespace mlnet
