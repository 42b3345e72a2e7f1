// SPDX-License-Identifier: Apache-2.0
// What a collective must give, computed in another way: long double sums, and the bound that the API
// promises (communicator.h).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace mlnet::sim {

using Floats = std::vector<float>;

/// Gradients of one rank: mixed signs, block magnitudes over some powers of two.
inline Floats RandomFloats(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Floats values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = std::ldexp(normal(random), static_cast<int>((i / 32 * 7) % 23) - 12);
  }
  return values;
}

inline int CeilLog2(int n) {
  int log2 = 0;
  while ((1 << log2) < n) ++log2;
  return log2;
}

/// Every element within n * M * 2^(ceil(log2 n) + 1 - 32) plus the rounding of the result.
inline void ExpectSumWithinBound(const std::vector<Floats>& inputs, const Floats& sum) {
  const int n = static_cast<int>(inputs.size());
  size_t wrong = 0;
  for (size_t block = 0; block < sum.size(); block += 32) {
    const size_t end = std::min(sum.size(), block + 32);
    long double most = 0;
    for (const Floats& input : inputs) {
      for (size_t i = block; i < end; ++i)
        most = std::max(most, std::fabs(static_cast<long double>(input[i])));
    }
    const long double bound = n * most * std::ldexp(1.0L, CeilLog2(n) + 1 - 32);
    for (size_t i = block; i < end; ++i) {
      long double exact = 0;
      for (const Floats& input : inputs) exact += input[i];
      const long double rounding = std::ldexp(std::fabs(exact) + bound, -24) + std::ldexp(1.0L, -150);
      if (std::fabs(sum[i] - exact) <= bound + rounding) continue;
      if (++wrong <= 3) ADD_FAILURE() << "element " << i << ": " << sum[i] << ", exact " << exact;
    }
  }
  EXPECT_EQ(wrong, 0u);
}

}  // namespace mlnet::sim
