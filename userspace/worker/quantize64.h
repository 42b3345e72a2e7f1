// SPDX-License-Identifier: Apache-2.0
// Stages 3 and 8 for more bits than a 32-bit lane has: float64 in 64-bit lanes, and blocks of float32 of a
// wide range, whose q + R is cut in two lanes (traffic/repair_traffic.h).
// Why apart from quantize.h: 64-bit integers and doubles convert one by one on most processors.
// Same definition: T = 2^(E - bias + 1), q = clamp(rint(x R / T), -R, R - 1), sent as q + R.
#pragma once

#include <cstdint>
#include <span>

#include "quantize.h"

namespace mlnet::worker {

inline constexpr uint32_t kBlock64Elements = MLNET_BLOCK64_BYTES / 8;  // twice as many where a pair covers two
inline constexpr int kFloat32Bias = 127, kFloat64Bias = 1023;

/// The 16-bit exponent pair of a block of float64 (wire.h).
ExponentRange RangeOf64(const PacketExps& exps, size_t block);
void MeasureExps64(std::span<const double> x, uint32_t block_elements, PacketExps& exps);

/// One lane: `largest` is the block's exponent with `bias`. What is not finite gives q = 0.
uint64_t QuantizeOne64(double x, int largest, int bias, int log2_range);
/// The sum of `weight` lanes, rounded once.
double DequantizeOne64(uint64_t lanes, int largest, int log2_range, uint32_t weight);

/// The same for a block of floats. REQUIRES: log2_range <= 61.
void QuantizeWide(std::span<const float> x, int largest, int log2_range, uint64_t* lanes);
void DequantizeWide(std::span<const uint64_t> lanes, int largest, int log2_range, uint32_t weight, float* out);

}  // namespace mlnet::worker
