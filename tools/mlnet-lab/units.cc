// SPDX-License-Identifier: Apache-2.0
#include "units.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace mlnet::lab {

Result<uint32_t> ParsePercent(const std::string& text) {
  const auto quantity = ParseQuantity(text);
  const bool unit_ok = quantity && (quantity->unit.empty() || quantity->unit == "%");
  if (!unit_ok || quantity->value > 100) {
    return Err(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a percentage", text),
               "write percent as a number from 0 to 100, for example 1 or 0.5");
  }
  return static_cast<uint32_t>(std::llround(quantity->value * 10'000));
}

Result<uint32_t> ParseDuration(const std::string& text) {
  if (text == "0") return 0u;
  const auto quantity = ParseQuantity(text);
  if (quantity) {
    for (const auto& [unit, factor] : {std::pair{"us", 1.0}, {"ms", 1e3}, {"s", 1e6}}) {
      if (quantity->unit == unit && quantity->value * factor <= 10e6) {
        return static_cast<uint32_t>(std::llround(quantity->value * factor));
      }
    }
  }
  return Err(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a delay", text),
             "write a delay as 500us, 2ms or 1s, at most 10s");
}

}  // namespace mlnet::lab
