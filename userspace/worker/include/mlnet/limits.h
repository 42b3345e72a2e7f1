// SPDX-License-Identifier: Apache-2.0
// How large a job may be. A node of a tree has up to MLNET_CHILDREN_MAX children (its bitmaps), a job more ranks than
// that: through trees of several levels.
#pragma once

namespace mlnet {

/// 8-bit integers are summed in lanes of 16 bits, which 257 ranks could make carry.
inline constexpr int kRanksMax = 256;

/// Sums of floats leave a lane at least 16 levels of int8, or 1024 of int16, with that many ranks.
inline constexpr int kInt8RanksMax = 16;
inline constexpr int kInt16RanksMax = 64;

}  // namespace mlnet
