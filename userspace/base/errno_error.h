// SPDX-License-Identifier: Apache-2.0
// errno and wire names as Error values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "mlnet/error.h"

namespace mlnet {

/// "what: strerror(err)", with the code that fits err (EPERM: kPermission, EBUSY: kConflict, ...).
Error ErrnoError(const std::string& what, int err, std::string hint = {});

/// Inverse of ErrorCodeName; nullopt for an unknown name.
std::optional<ErrorCode> ErrorCodeFromName(std::string_view name);

}  // namespace mlnet
