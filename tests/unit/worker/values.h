// SPDX-License-Identifier: Apache-2.0
// Random tensors of every type, and what their reductions must be, in arithmetic wide enough to be exact.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "mlnet/communicator.h"

namespace mlnet::worker {

using Bytes = std::vector<std::byte>;
__extension__ using Quad = __float128;

enum class Style {
  kGradients,   // around one magnitude
  kWholeRange,  // any bits that are finite: neighbours differ by hundreds of powers of two
  kSpecials,    // gradients, a few infinities, NaNs and zeros
};

inline Quad Magnitude(Quad x) { return x < 0 ? -x : x; }

inline double DoubleAt(DataType dtype, const Bytes& values, size_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, values.data() + i * SizeOf(dtype), SizeOf(dtype));
  if (dtype == DataType::kFloat64) return std::bit_cast<double>(bits);
  if (dtype == DataType::kFloat32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  if (dtype == DataType::kBFloat16) return std::bit_cast<float>(static_cast<uint32_t>(bits << 16));
  const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
  const double sign = (bits >> 15 & 1) != 0 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

inline int64_t IntegerAt(DataType dtype, const Bytes& values, size_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, values.data() + i * SizeOf(dtype), SizeOf(dtype));
  switch (dtype) {
    case DataType::kInt8:
      return static_cast<int8_t>(bits);
    case DataType::kInt16:
      return static_cast<int16_t>(bits);
    case DataType::kInt32:
      return static_cast<int32_t>(bits);
    default:
      return static_cast<int64_t>(bits);
  }
}

/// By the definition, wrapping where the type does; bool: any and all.
inline int64_t ReducedInteger(DataType dtype, ReduceOp op, const std::vector<Bytes>& in, size_t i) {
  int64_t result = IntegerAt(dtype, in[0], i);
  for (size_t r = 1; r < in.size(); ++r) {
    const int64_t x = IntegerAt(dtype, in[r], i);
    if (op == ReduceOp::kSum) result = static_cast<int64_t>(static_cast<uint64_t>(result) + static_cast<uint64_t>(x));
    if (op == ReduceOp::kMin) result = std::min(result, x);
    if (op == ReduceOp::kMax) result = std::max(result, x);
    if (op == ReduceOp::kBitAnd) result &= x;
    if (op == ReduceOp::kBitOr) result |= x;
    if (op == ReduceOp::kBitXor) result ^= x;
  }
  if (dtype == DataType::kBool) return result != 0;
  Bytes narrow(8);
  std::memcpy(narrow.data(), &result, 8);
  return IntegerAt(dtype, narrow, 0);
}

inline Bytes RandomValues(DataType dtype, size_t count, Style style, std::mt19937_64& random) {
  const size_t size = SizeOf(dtype);
  const int mantissa = dtype == DataType::kFloat64 ? 52 : dtype == DataType::kFloat32 ? 23 : dtype == DataType::kFloat16 ? 10 : 7;
  const int bits = static_cast<int>(size * 8);
  const uint64_t infinity = ((1ULL << (bits - 1)) - 1) >> mantissa << mantissa;
  const bool is_float = dtype == DataType::kFloat64 || dtype == DataType::kFloat32 || dtype == DataType::kFloat16 ||
                        dtype == DataType::kBFloat16;
  const uint64_t center = (infinity >> mantissa) / 2;
  Bytes values(count * size);
  for (size_t i = 0; i < count; ++i) {
    uint64_t x = random();
    if (dtype == DataType::kBool) x &= 1;
    if (is_float && style != Style::kWholeRange) {  // a few powers of two below the centre
      const uint64_t exponent = center - 4 + random() % 8;
      x = (x & ~infinity) | exponent << mantissa;
    }
    if (is_float && (x & infinity) == infinity) x ^= 1ULL << mantissa;  // finite
    if (is_float && random() % 16 == 0) x &= 1ULL << (bits - 1);        // zeros of both signs
    if (style == Style::kSpecials && random() % 50 == 0) {
      x = infinity | (random() & 1) << (bits - 1) | (random() % 3 == 0 ? 1 : 0);
    }
    std::memcpy(values.data() + i * size, &x, size);
  }
  return values;
}

struct ElementSums {
  Quad exact = 0, magnitudes = 0;
  double block_most = 0;  // largest finite magnitude in the element's block, over all ranks
  bool is_special = false;
  double special = 0;
};

inline ElementSums SumsOf(DataType dtype, const std::vector<Bytes>& in, size_t i, size_t block) {
  ElementSums sums;
  const size_t count = in[0].size() / SizeOf(dtype), first = i / block * block;
  for (const Bytes& values : in) {
    const double x = DoubleAt(dtype, values, i);
    if (!std::isfinite(x)) {
      sums.special = sums.is_special ? sums.special + x : x;
      sums.is_special = true;
    } else {
      sums.exact += Quad{x};
      sums.magnitudes += Magnitude(Quad{x});
    }
    for (size_t k = first; k < std::min(count, first + block); ++k) {
      const double other = std::fabs(DoubleAt(dtype, values, k));
      if (std::isfinite(other)) sums.block_most = std::max(sums.block_most, other);
    }
  }
  return sums;
}

inline double LargestOf(DataType dtype) {
  if (dtype == DataType::kFloat64) return std::numeric_limits<double>::max();
  if (dtype == DataType::kFloat32) return std::numeric_limits<float>::max();
  return dtype == DataType::kFloat16 ? 65504 : 0x1.fep127;
}

/// Half a unit in the last place of the type at `x`, and of float32, through which the narrow ones go.
inline Quad RoundingOf(DataType dtype, Quad x) {
  if (dtype == DataType::kFloat64) {
    const Quad half = x * Quad{0x1p-53}, least = Quad{std::numeric_limits<double>::denorm_min()} / 2;
    return half > least ? half : least;
  }
  const Quad float32 = std::max(x * Quad{0x1p-24}, Quad{0x1p-150});
  if (dtype == DataType::kFloat32) return float32;
  const Quad narrow = dtype == DataType::kFloat16 ? std::max(x * Quad{0x1p-11}, Quad{0x1p-25})
                                                  : std::max(x * Quad{0x1p-8}, Quad{0x1p-134});
  return float32 + narrow + float32 * Quad{0x1p-8};
}

}  // namespace mlnet::worker
