// SPDX-License-Identifier: Apache-2.0
// Quantities as people write them: rates, percentages, durations.
#pragma once

#include <cstdint>
#include <string>

#include "mlnet/error.h"

namespace mlnet::lab {

/// "500mbit", "2gbit", "64kbit", "1000bit" to bits per second; "unlimited" and "0" to 0.
Result<uint64_t> ParseRate(const std::string& text);
std::string FormatRate(uint64_t bits_per_second);

/// "1", "0.5", "1%": percent to parts per million. 0 to 100.
Result<uint32_t> ParsePercent(const std::string& text);

/// "2ms", "500us", "1s", "0" to microseconds, at most 10 s.
Result<uint32_t> ParseDuration(const std::string& text);

}  // namespace mlnet::lab
