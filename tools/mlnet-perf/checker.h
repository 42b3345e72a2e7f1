// SPDX-License-Identifier: Apache-2.0
// Is a result right? Against what is computed here, in long double, from the ranks' inputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mlnet/communicator.h"

namespace mlnet::perf {

/// How far a sum of floats may be from the true one. Integers, modulo their width, min and max are exact.
enum class Promise {
  kBlock,    // mlnet: n * M * 2^(ceil(log2 n) + 1 - L), and the rounding of the result
  kElement,  // mlnet: no more than that, nor than 2^-12 of the element's sum of magnitudes (float64: 2^-24)
  kAdds,     // peers, which add in the element's type in some order: (n - 1) roundings of partial sums
  kHalfAdds,  // the same in float16, to which float32 is rounded first
};

/// What was asked for.
struct Reduction {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Promise promise = Promise::kBlock;
  WireType wire = WireType::kInt32;  // narrow: L is 16 or 8, and kElement promises no more than kBlock
  int world_size = 1;
  size_t block_bytes = 128;  // of lanes under one bound; float64: twice that
};

/// Shares of a tensor begin at multiples of this: a whole number of blocks, whatever the lanes.
inline constexpr size_t kShareElements = 256;

/// Elements of result[first, first + count) outside the promise; result is the whole tensor's start.
/// REQUIRES: first is a multiple of BlockElements, and so is first + count unless it ends the tensor.
uint64_t CountWrong(const Reduction& reduction, uint64_t seed, const void* result, size_t first,
                    size_t count);

/// Elements whose bits differ.
uint64_t CountDifferent(const void* a, const void* b, size_t count, size_t element_bytes);

/// Bits of the lanes that sums of floats travel in, and how many elements share the bound.
int LaneBits(DataType dtype, WireType wire);
size_t BlockElements(const Reduction& reduction);

/// The error that a sum of floats may have before the result is rounded. `max` is the largest magnitude of
/// the block, `magnitude` the element's own sum of magnitudes, over all ranks.
long double ErrorBound(const Reduction& reduction, double max, long double magnitude);

}  // namespace mlnet::perf
