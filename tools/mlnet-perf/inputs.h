// SPDX-License-Identifier: Apache-2.0
// The numbers that ranks contribute: a pure function of (type, seed, rank, index), so that any rank can
// compute what every other one sent. Magnitudes of floats differ between elements, blocks and ranks, with
// zeros and whole zero blocks among them; integers have all bits, so that their sums wrap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mlnet-perf/element_type.h"

namespace mlnet::perf {

/// The type holds it exactly, and a long double the sum of any 64 of them.
double FloatInput(const ElementType& type, uint64_t seed, int rank, uint64_t index);
int64_t IntegerInput(const ElementType& type, uint64_t seed, int rank, uint64_t index);

/// Elements 0..count-1 of `rank`.
void FillInputs(const ElementType& type, uint64_t seed, int rank, void* out, size_t count);

/// Whole numbers within 2^9, other ones for each seed: their sums over 64 ranks are exact in a float.
float WholeInput(uint64_t seed, int rank, uint64_t index);

/// Seeds of different collectives from one.
uint64_t MixSeed(uint64_t seed, uint64_t a, uint64_t b);

}  // namespace mlnet::perf
