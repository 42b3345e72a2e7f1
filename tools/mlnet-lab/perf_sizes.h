// SPDX-License-Identifier: Apache-2.0
// The sizes that mlnet-lab perf is told to measure: "64M", "1K:4M", "4,8,1M".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mlnet/error.h"

namespace mlnet::lab {

/// Numbers with an optional K, M or G (powers of 1024), separated by commas; A:B doubles from A and ends with
/// B.
Result<std::vector<uint64_t>> ParseSizes(const std::string& text);

/// Elements of `element_bytes` for sizes in bytes; kInvalidArgument for one that is no whole number of
/// elements.
Result<std::vector<uint64_t>> CountsOfSizes(const std::vector<uint64_t>& sizes, size_t element_bytes);

}  // namespace mlnet::lab
