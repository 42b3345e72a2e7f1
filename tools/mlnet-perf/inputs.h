// SPDX-License-Identifier: Apache-2.0
// The numbers that ranks contribute: a pure function of (seed, rank, index), so that any rank can compute
// what every other one sent. Magnitudes differ between elements, blocks and ranks, with zeros and whole
// zero blocks among them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mlnet/communicator.h"

namespace mlnet::perf {

inline constexpr size_t kBlockElements = 32;  // the block of the error bound, by offset

float FloatInput(uint64_t seed, int rank, uint64_t index);
int32_t Int32Input(uint64_t seed, int rank, uint64_t index);

/// Elements 0..count-1 of `rank`.
void FillInputs(DataType dtype, uint64_t seed, int rank, void* out, size_t count);

/// Seeds of different collectives from one.
uint64_t MixSeed(uint64_t seed, uint64_t a, uint64_t b);

}  // namespace mlnet::perf
