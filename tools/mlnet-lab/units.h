// SPDX-License-Identifier: Apache-2.0
// Quantities as people write them: rates, percentages, durations.
#pragma once

#include <cstdint>
#include <string>

#include "base/rate.h"
#include "mlnet/error.h"

namespace mlnet::lab {

using mlnet::FormatRate;
using mlnet::ParseRate;

/// "1", "0.5", "1%": percent to parts per million. 0 to 100.
Result<uint32_t> ParsePercent(const std::string& text);

/// "2ms", "500us", "1s", "0" to microseconds, at most 10 s.
Result<uint32_t> ParseDuration(const std::string& text);

}  // namespace mlnet::lab
