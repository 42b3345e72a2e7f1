// SPDX-License-Identifier: Apache-2.0
#include "perf_sizes.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <sstream>

namespace mlnet::lab {
namespace {

constexpr uint64_t kSizeMax = 1ULL << 40;

std::optional<uint64_t> ParseOne(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value == 0 || value > kSizeMax) return std::nullopt;
  const std::string suffix(end, text.data() + text.size());
  int shift = 0;
  if (suffix == "K" || suffix == "k")
    shift = 10;
  else if (suffix == "M")
    shift = 20;
  else if (suffix == "G")
    shift = 30;
  else if (!suffix.empty())
    return std::nullopt;
  if (value > kSizeMax >> shift) return std::nullopt;
  return value << shift;
}

}  // namespace

Result<std::vector<uint64_t>> ParseSizes(const std::string& text) {
  const auto wrong = [](const std::string& part) {
    return Err(ErrorCode::kInvalidArgument, fmt::format("'{}' is no size", part),
               "write 64M, 1K:4M or 4,8,1M");
  };
  std::vector<uint64_t> sizes;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t colon = part.find(':');
    const auto from = ParseOne(part.substr(0, colon));
    if (!from) return wrong(part);
    if (colon == std::string::npos) {
      sizes.push_back(*from);
      continue;
    }
    const auto to = ParseOne(part.substr(colon + 1));
    if (!to || *to < *from) return wrong(part);
    for (uint64_t size = *from; size < *to; size *= 2) sizes.push_back(size);
    sizes.push_back(*to);
  }
  if (sizes.empty()) return wrong(text);
  return sizes;
}

Result<std::vector<uint64_t>> CountsOfSizes(const std::vector<uint64_t>& sizes, size_t element_bytes) {
  std::vector<uint64_t> counts;
  for (uint64_t size : sizes) {
    if (size % element_bytes != 0) {
      return Err(ErrorCode::kInvalidArgument,
                 fmt::format("{} bytes are no whole number of {}-byte elements", size, element_bytes),
                 "--counts takes numbers of elements");
    }
    counts.push_back(size / element_bytes);
  }
  return counts;
}

}  // namespace mlnet::lab
