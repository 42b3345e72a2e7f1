// SPDX-License-Identifier: Apache-2.0
// Rates of links as people write them.
#pragma once

#include <cstdint>
#include <string>

#include "mlnet/error.h"

namespace mlnet {

/// "500mbit", "2gbit", "64kbit", "1000bit" to bits per second; "unlimited" and "0" to 0.
Result<uint64_t> ParseRate(const std::string& text);
std::string FormatRate(uint64_t bits_per_second);

}  // namespace mlnet
