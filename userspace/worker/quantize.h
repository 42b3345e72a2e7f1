// SPDX-License-Identifier: Apache-2.0
// Stage 3 of the tensor path: floats become biased lanes under a block exponent that all ranks share.
// Why: lanes are sized so that no sum of world_size of them carries, hence one 64-bit add sums 2, 4 or 8.
// Invariants: (1) q in [-R, R-1], sent as q + R; (2) the result depends on the data and E alone.
// Not here: how E is agreed (traffic/float_traffic.h), the way back (dequantize.h), float64
// (quantize64.h). The error bound is in DESIGN.md.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "mlnet/wire.h"

namespace mlnet::worker {

/// Coded exponent pairs of the blocks of one packet (wire.h).
using PacketExps = std::array<uint8_t, MLNET_EXPS_BYTES>;
inline constexpr size_t kPacketFloatsMax = MLNET_WORDS_MAX * 8;  // of the narrowest lanes
inline constexpr size_t kBlockFloatsMax = 2 * MLNET_BLOCK_BYTES;  // the same, of those under one exponent

/// How a block of floats travels: L bits a lane, R = 2^log2_range, `block_elements` under one exponent.
struct LaneFormat {
  int bits = 32;
  int log2_range = 31;
  uint32_t block_elements = 32;

  /// For 8, 16 or 32 bits, in a job of packets of `blocks`. R is the largest power of two with 2R <= floor((2^L - 1) / world_size) + 1.
  static LaneFormat Of(int bits, int world_size, uint32_t blocks = MLNET_BLOCKS_MTU1500);
};

/// log2 of R for lanes of `bits` bits: n lanes of at most 2R - 1 fit.
int Log2Range(int bits, int world_size);

/// So many floats ahead of where it works, a loop over a packet's floats asks for those of the packets after it: no cache holds a
/// large tensor, and a processor's own prefetching need not keep up (tests/bench/PROFILE.md). Past the tensor's end it does no harm.
inline constexpr size_t kFetchAhead = 1024;

/// 2^exponent, which must be a normal number. std::ldexp is a call, and a packet needs dozens.
constexpr float PowerOfTwo32(int exponent) { return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23); }
constexpr double PowerOfTwo64(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }

/// Largest and smallest biased exponent in a block; both 0: all elements are zero.
struct ExponentRange {
  int largest = 0;
  int smallest = 0;
};
inline ExponentRange RangeOf(const PacketExps& exps, size_t block) {
  if (exps[2 * block] == 0) return {};
  return {exps[2 * block], 255 - exps[2 * block + 1]};
}

/// This rank's exponents of `x`, a packet's elements; what is not finite does not count; blocks past the
/// end of `x` code as all zero.
void MeasureExps(std::span<const float> x, uint32_t block_elements, PacketExps& exps);

/// Numbers for stochastic rounding: a hash of seed and element, so a packet that is built again is the same.
struct Dither {
  uint32_t seed = 0;
  uint32_t first_element = 0;
};

/// Lanes of `x` rounded up to whole blocks; padding is q = 0, and so is an element that is not finite, and
/// every element of a block whose bit is set in `skip` or that is all zero. False when something was not finite.
bool Quantize(std::span<const float> x, const PacketExps& common, const LaneFormat& format, uint32_t skip,
              const std::optional<Dither>& dither, void* lanes);

}  // namespace mlnet::worker
