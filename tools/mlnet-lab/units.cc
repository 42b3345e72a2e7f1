// SPDX-License-Identifier: Apache-2.0
#include "units.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

namespace mlnet::lab {
namespace {

struct Quantity {
  double value = 0;
  std::string unit;
};

std::optional<Quantity> Split(const std::string& text) {
  if (text.empty() || text[0] == '-' || text[0] == '+') return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(value)) return std::nullopt;
  return Quantity{value, std::string(end)};
}

}  // namespace

Result<uint32_t> ParsePercent(const std::string& text) {
  const auto quantity = Split(text);
  const bool unit_ok = quantity && (quantity->unit.empty() || quantity->unit == "%");
  if (!unit_ok || quantity->value > 100) {
    return Err(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a percentage", text),
               "write percent as a number from 0 to 100, for example 1 or 0.5");
  }
  return static_cast<uint32_t>(std::llround(quantity->value * 10'000));
}

Result<uint32_t> ParseDuration(const std::string& text) {
  if (text == "0") return 0u;
  const auto quantity = Split(text);
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
