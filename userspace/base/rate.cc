// SPDX-License-Identifier: Apache-2.0
#include "base/rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace mlnet {
namespace {

constexpr double kRateMin = 64e3, kRateMax = 1000e9;

}  // namespace

std::optional<Quantity> ParseQuantity(const std::string& text) {
  // strtod would skip spaces, and take signs, hexadecimal digits and names.
  const size_t digits = std::min(text.find_first_not_of("0123456789.eE"), text.size());
  Quantity quantity;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + digits, quantity.value);
  if (ec != std::errc() || !std::isfinite(quantity.value)) return std::nullopt;
  quantity.unit = std::string(end, text.data() + text.size());
  return quantity;
}

Result<uint64_t> ParseRate(const std::string& text) {
  constexpr const char* kHint = "write a rate as 500mbit, 2gbit or unlimited, between 64kbit and 1000gbit";
  if (text == "unlimited" || text == "0") return uint64_t{0};
  const auto quantity = ParseQuantity(text);
  for (const auto& [unit, factor] : {std::pair{"bit", 1.0}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}) {
    if (!quantity || quantity->unit != unit) continue;
    const double bits = quantity->value * factor;
    if (bits >= kRateMin && bits <= kRateMax) return static_cast<uint64_t>(std::llround(bits));
    return Err(ErrorCode::kInvalidArgument, fmt::format("rate '{}' is out of range", text), kHint);
  }
  return Err(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a rate", text), kHint);
}

std::string FormatRate(uint64_t bits_per_second) {
  if (bits_per_second == 0) return "unlimited";
  for (const auto& [unit, factor] :
       {std::pair{"gbit", 1'000'000'000ULL}, {"mbit", 1'000'000ULL}, {"kbit", 1'000ULL}}) {
    if (bits_per_second % factor == 0) return fmt::format("{}{}", bits_per_second / factor, unit);
  }
  return fmt::format("{}bit", bits_per_second);
}

}  // namespace mlnet
