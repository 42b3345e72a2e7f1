// SPDX-License-Identifier: Apache-2.0
#include "quantize64.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace mlnet::worker {
namespace {

constexpr int kExponentMax = 2047;

uint16_t Pair(const PacketExps& exps, size_t at) {
  uint16_t value;
  std::memcpy(&value, &exps[at], sizeof(value));
  return value;
}

// long double holds every 64-bit sum (x87: 64 bits of significand, other ABIs 113), so one rounding follows.
template <typename T>
T SumTo(uint64_t lanes, int largest, int bias, int log2_range, uint32_t weight) {
  if (largest == 0) return T{0};
  const auto sum = static_cast<int64_t>(lanes - (uint64_t{weight} << log2_range));
  return static_cast<T>(std::ldexp(static_cast<long double>(sum), largest - bias + 1 - log2_range));
}

}  // namespace

ExponentRange RangeOf64(const PacketExps& exps, size_t block) {
  const int largest = Pair(exps, 4 * block);
  if (largest == 0) return {};
  return {largest, kExponentMax - Pair(exps, 4 * block + 2)};
}

void MeasureExps64(std::span<const double> x, uint32_t block_elements, PacketExps& exps) {
  exps.fill(0);
  for (size_t first = 0; first < x.size(); first += block_elements) {
    int largest = 0, smallest = kExponentMax;
    for (const double value : x.subspan(first, std::min<size_t>(block_elements, x.size() - first))) {
      if (value == 0 || !std::isfinite(value)) continue;
      const int exponent = std::max(1, static_cast<int>(std::bit_cast<uint64_t>(value) >> 52 & 0x7ff));
      largest = std::max(largest, exponent);
      smallest = std::min(smallest, exponent);
    }
    if (largest == 0) continue;
    const uint16_t pair[2] = {static_cast<uint16_t>(largest), static_cast<uint16_t>(kExponentMax - smallest)};
    std::memcpy(&exps[first / block_elements * 4], pair, sizeof(pair));
  }
}

uint64_t QuantizeOne64(double x, int largest, int bias, int log2_range) {
  const int64_t range = int64_t{1} << log2_range;
  if (largest == 0 || !std::isfinite(x)) return static_cast<uint64_t>(range);
  // Two factors: one alone may leave the range of double.
  const int shift = log2_range - (largest - bias + 1);
  const double scaled = std::rint(std::ldexp(std::ldexp(x, shift / 2), shift - shift / 2));
  const double limit = std::ldexp(1.0, log2_range);
  const int64_t q = scaled >= limit ? range - 1 : scaled <= -limit ? -range : static_cast<int64_t>(scaled);
  return static_cast<uint64_t>(q + range);
}

double DequantizeOne64(uint64_t lanes, int largest, int log2_range, uint32_t weight) {
  return SumTo<double>(lanes, largest, kFloat64Bias, log2_range, weight);
}

void QuantizeWide(std::span<const float> x, int largest, int log2_range, uint64_t* lanes) {
  const int64_t range = int64_t{1} << log2_range;
  // In double one factor will do: 2^-149 to 2^128 times 2^-128 to 2^187.
  const double factor = largest == 0 ? 0 : std::ldexp(1.0, log2_range - (largest - kFloat32Bias + 1));
  for (const float value : x) {
    const double scaled = std::isfinite(value) ? static_cast<double>(value) * factor : 0;
    const int64_t q = std::min<int64_t>(std::llrint(scaled), range - 1);
    *lanes++ = static_cast<uint64_t>(std::max(q, -range) + range);
  }
}

void DequantizeWide(std::span<const uint64_t> lanes, int largest, int log2_range, uint32_t weight, float* out) {
  const int exponent = largest - kFloat32Bias + 1 - log2_range;
  // From a step of 2^-126 on no result is subnormal, so the conversion to float is the only rounding.
  const bool is_normal = exponent >= -126;
  const float step = is_normal ? std::ldexp(1.0F, exponent) : 0;
  for (const uint64_t lane : lanes) {
    const auto sum = static_cast<int64_t>(lane - (uint64_t{weight} << log2_range));
    *out++ = is_normal ? static_cast<float>(sum) * step
                       : SumTo<float>(lane, largest, kFloat32Bias, log2_range, weight);
  }
}

}  // namespace mlnet::worker
