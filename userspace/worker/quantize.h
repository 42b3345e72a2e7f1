// SPDX-License-Identifier: Apache-2.0
// Stage 3 of the tensor path: floats become biased 32-bit lanes under a block exponent all ranks share.
// Why: lanes are sized so that no sum of world_size of them carries, hence one 64-bit add sums two.
// Invariants: (1) q in [-R, R-1], sent as q + R; (2) the result depends on the data and E alone.
// Not here: how E is agreed (lane.h), the way back (dequantize.h). The error bound is in DESIGN.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "mlnet/wire.h"

namespace mlnet::worker {

inline constexpr size_t kBlockElements = MLNET_BLOCK_BYTES / 4;
inline constexpr uint8_t kExpNonFinite = 255;
inline constexpr int kWideBits = 12;  // a block that leaves its smallest element fewer bits is wide

/// Coded exponent pairs of the blocks of one packet (wire.h).
using PacketExps = std::array<uint8_t, MLNET_EXPS_BYTES>;

/// log2 of R, the largest power of two with 2R <= floor((2^32 - 1) / world_size) + 1.
int Log2Range(int world_size);

/// This rank's exponents of `x`, a packet's elements; blocks past its end code as all zero.
void MeasureExps(std::span<const float> x, PacketExps& exps);

/// Lanes of `x` rounded up to whole blocks; padding is q = 0. A block that is all zero or has a
/// non-finite element anywhere sends q = 0.
void Quantize(std::span<const float> x, const PacketExps& common, int log2_range, uint32_t* lanes);

bool HasNonFinite(const PacketExps& common);
uint32_t CountWideBlocks(const PacketExps& common, int log2_range);

}  // namespace mlnet::worker
