// SPDX-License-Identifier: Apache-2.0
// Rates of links as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mlnet/error.h"

namespace mlnet {

/// "2.5gbit": a number and what stands behind it.
struct Quantity {
  double value = 0;  // finite and not negative
  std::string unit;
};
/// nullopt where the text does not begin with a plain number.
std::optional<Quantity> ParseQuantity(const std::string& text);

/// "500mbit", "2gbit", "64kbit", "1000bit" to bits per second; "unlimited" and "0" to 0.
Result<uint64_t> ParseRate(const std::string& text);
std::string FormatRate(uint64_t bits_per_second);

}  // namespace mlnet
