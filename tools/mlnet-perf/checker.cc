// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/checker.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "mlnet-perf/inputs.h"

namespace mlnet::perf {
namespace {

/// Half of the distance between `value` and its neighbours in a type: what rounding to it may add. The slack
/// is a thousand times what a way through a wider type adds, as dequantising to float32 through double.
long double HalfUlp(const ElementType& type, double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0L + 0x1p-19L, std::max(exponent, type.min_exponent) - type.digits - 1);
}

/// Of a result: types narrower than float32 are reached through it.
long double Rounding(const ElementType& type, double value) {
  const ElementType& float32 = TypeOf(DataType::kFloat32);
  return HalfUlp(type, value) + (type.digits < float32.digits ? HalfUlp(float32, value) : 0);
}

struct BlockSums {
  long double sum[kShareElements] = {};
  long double magnitude[kShareElements] = {};  // sum of |x|
  double max = 0;                              // over the block and all ranks
};

BlockSums SumBlock(const ElementType& type, uint64_t seed, int world_size, size_t first, size_t count) {
  BlockSums sums;
  for (int rank = 0; rank < world_size; ++rank) {
    for (size_t i = 0; i < count; ++i) {
      const double x = FloatInput(type, seed, rank, first + i);
      sums.sum[i] += x;
      sums.magnitude[i] += std::fabs(x);
      sums.max = std::max(sums.max, std::fabs(x));
    }
  }
  return sums;
}

uint64_t CountWrongSums(const Reduction& reduction, uint64_t seed, const void* result, size_t first,
                        size_t count) {
  const ElementType& type = TypeOf(reduction.dtype);
  const size_t block_elements = BlockElements(reduction);
  uint64_t wrong = 0;
  for (size_t block = first; block < first + count; block += block_elements) {
    const size_t in_block = std::min(block_elements, first + count - block);
    const BlockSums sums = SumBlock(type, seed, reduction.world_size, block, in_block);
    for (size_t i = 0; i < in_block; ++i) {
      const double got = LoadFloat(type, result, block + i);
      const bool is_peers = reduction.promise == Promise::kAdds || reduction.promise == Promise::kHalfAdds;
      const long double allowed = ErrorBound(reduction, sums.max, sums.magnitude[i]) + (is_peers ? 0 : Rounding(type, got));
      // Written so that a NaN or an infinity, for which `allowed` may be anything, counts as wrong.
      const bool is_right = std::isfinite(got) && std::fabs(got - sums.sum[i]) <= allowed;
      wrong += is_right ? 0 : 1;
    }
  }
  return wrong;
}

template <typename T>
T Reduce(ReduceOp op, T a, T b) {
  return op == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
}

bool IsRightFloat(const Reduction& reduction, uint64_t seed, const void* result, size_t i) {
  const ElementType& type = TypeOf(reduction.dtype);
  double expected = FloatInput(type, seed, 0, i);
  for (int rank = 1; rank < reduction.world_size; ++rank)
    expected = Reduce(reduction.op, expected, FloatInput(type, seed, rank, i));
  return LoadFloat(type, result, i) == expected;
}

bool IsRightInteger(const Reduction& reduction, uint64_t seed, const void* result, size_t i) {
  const ElementType& type = TypeOf(reduction.dtype);
  int64_t expected = IntegerInput(type, seed, 0, i);
  for (int rank = 1; rank < reduction.world_size; ++rank) {
    const int64_t x = IntegerInput(type, seed, rank, i);
    expected = reduction.op == ReduceOp::kSum
                   ? Wrap(type, static_cast<uint64_t>(expected) + static_cast<uint64_t>(x))
                   : Reduce(reduction.op, expected, x);
  }
  return LoadInteger(type, result, i) == expected;
}

}  // namespace

int LaneBits(DataType dtype, WireType wire) {
  if (dtype == DataType::kFloat64) return 64;
  return wire == WireType::kInt32 ? 32 : wire == WireType::kInt16 ? 16 : 8;
}

size_t BlockElements(const Reduction& reduction) {
  const size_t bytes = reduction.dtype == DataType::kFloat64 ? 2 * reduction.block_bytes : reduction.block_bytes;
  return bytes * 8 / static_cast<size_t>(LaneBits(reduction.dtype, reduction.wire));
}

long double ErrorBound(const Reduction& reduction, double max, long double magnitude) {
  const int n = reduction.world_size;
  if (reduction.promise == Promise::kAdds) {
    const long double rounding = std::ldexp(1.0L, -TypeOf(reduction.dtype).digits);
    // The slack is for a backend that adds in a wider type before it rounds.
    return std::expm1((n - 1) * std::log1p(rounding)) * 1.001L * magnitude;
  }
  if (reduction.promise == Promise::kHalfAdds) {
    // Each input and each partial sum is rounded once; below the smallest normal float16 by half a step of fixed size.
    const ElementType& half = TypeOf(DataType::kFloat16);
    const long double step = std::ldexp(1.0L, half.min_exponent - half.digits - 1);
    return std::expm1(n * std::log1p(std::ldexp(1.0L, -half.digits))) * 1.001L * magnitude + (2 * n - 1) * step;
  }
  const int log2_ceil = std::bit_width(static_cast<unsigned>(n - 1));
  const int lane_bits = LaneBits(reduction.dtype, reduction.wire);
  const long double of_block = n * std::ldexp(static_cast<long double>(max), log2_ceil + 1 - lane_bits);
  if (reduction.promise == Promise::kBlock || reduction.wire != WireType::kInt32) return of_block;
  return std::min(of_block, std::ldexp(magnitude, reduction.dtype == DataType::kFloat64 ? -24 : -12));
}

uint64_t CountWrong(const Reduction& reduction, uint64_t seed, const void* result, size_t first,
                    size_t count) {
  const bool is_float = TypeOf(reduction.dtype).IsFloat();
  if (is_float && reduction.op == ReduceOp::kSum)
    return CountWrongSums(reduction, seed, result, first, count);
  uint64_t wrong = 0;
  for (size_t i = first; i < first + count; ++i) {
    const bool is_right =
        is_float ? IsRightFloat(reduction, seed, result, i) : IsRightInteger(reduction, seed, result, i);
    wrong += is_right ? 0 : 1;
  }
  return wrong;
}

uint64_t CountDifferent(const void* a, const void* b, size_t count, size_t element_bytes) {
  const auto* left = static_cast<const std::byte*>(a);
  const auto* right = static_cast<const std::byte*>(b);
  uint64_t different = 0;
  for (size_t at = 0; at < count * element_bytes; at += element_bytes)
    different += std::memcmp(left + at, right + at, element_bytes) != 0 ? 1 : 0;
  return different;
}

}  // namespace mlnet::perf
