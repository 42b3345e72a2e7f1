// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/checker.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "mlnet-perf/inputs.h"

namespace mlnet::perf {
namespace {

constexpr int kLaneBits = 32;

/// Half of the distance between `value` and its neighbours: what rounding to float32 may add. Dequantising
/// goes through double, whose own rounding is 2^-29 of that: a thousandth of the slack given here.
double HalfUlp(float value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0 + 0x1p-19, std::max(exponent, -125) - 25);
}

struct BlockSums {
  long double sum[kBlockElements] = {};
  long double magnitude[kBlockElements] = {};  // sum of |x|
  double max = 0;                              // over the block and all ranks
};

BlockSums SumBlock(uint64_t seed, int world_size, size_t first, size_t count) {
  BlockSums sums;
  for (int rank = 0; rank < world_size; ++rank) {
    for (size_t i = 0; i < count; ++i) {
      const double x = FloatInput(seed, rank, first + i);
      sums.sum[i] += x;
      sums.magnitude[i] += std::fabs(x);
      sums.max = std::max(sums.max, std::fabs(x));
    }
  }
  return sums;
}

uint64_t CountWrongFloats(Promise promise, uint64_t seed, int world_size, const float* result, size_t first,
                          size_t count) {
  uint64_t wrong = 0;
  for (size_t block = first; block < first + count; block += kBlockElements) {
    const size_t in_block = std::min(kBlockElements, first + count - block);
    const BlockSums sums = SumBlock(seed, world_size, block, in_block);
    for (size_t i = 0; i < in_block; ++i) {
      const float got = result[block + i];
      const long double allowed = promise == Promise::kBlockExponent
                                      ? BlockBound(world_size, sums.max) + HalfUlp(got)
                                      : (world_size - 1) * 0x1p-24L * 1.001L * sums.magnitude[i];
      // Written so that a NaN counts as wrong.
      const bool is_right = std::fabs(static_cast<long double>(got) - sums.sum[i]) <= allowed;
      wrong += is_right ? 0 : 1;
    }
  }
  return wrong;
}

}  // namespace

double BlockBound(int world_size, double max) {
  const int log2_ceil = std::bit_width(static_cast<unsigned>(world_size - 1));
  return world_size * max * std::ldexp(1.0, log2_ceil + 1 - kLaneBits);
}

uint64_t CountWrong(DataType dtype, Promise promise, uint64_t seed, int world_size, const void* result,
                    size_t first, size_t count) {
  if (dtype == DataType::kFloat32) {
    return CountWrongFloats(promise, seed, world_size, static_cast<const float*>(result), first, count);
  }
  const auto* values = static_cast<const int32_t*>(result);
  uint64_t wrong = 0;
  for (size_t i = first; i < first + count; ++i) {
    uint32_t sum = 0;
    for (int rank = 0; rank < world_size; ++rank) sum += static_cast<uint32_t>(Int32Input(seed, rank, i));
    wrong += static_cast<uint32_t>(values[i]) != sum ? 1 : 0;
  }
  return wrong;
}

uint64_t CountDifferent(const void* a, const void* b, size_t count) {
  const auto* left = static_cast<const uint32_t*>(a);
  const auto* right = static_cast<const uint32_t*>(b);
  uint64_t different = 0;
  for (size_t i = 0; i < count; ++i) different += left[i] != right[i] ? 1 : 0;
  return different;
}

}  // namespace mlnet::perf
