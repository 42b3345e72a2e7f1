// SPDX-License-Identifier: Apache-2.0
// Is a result right? Against a sum computed here, in long double, from the ranks' inputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mlnet/communicator.h"

namespace mlnet::perf {

/// How far a float32 sum may be from the true one. int32 is always exact, modulo 2^32.
enum class Promise {
  kBlockExponent,  // mlnet: n * M * 2^(ceil(log2 n) + 1 - 32) and the rounding of the result
  kFloatAdds,      // peers, which add float32 in some order: (n - 1) roundings of partial sums
};

/// Elements of result[first, first + count) outside the promise; result is the whole tensor's start.
/// REQUIRES: first is a multiple of kBlockElements, and so is first + count unless it ends the tensor.
uint64_t CountWrong(DataType dtype, Promise promise, uint64_t seed, int world_size, const void* result,
                    size_t first, size_t count);

/// Elements whose bits differ.
uint64_t CountDifferent(const void* a, const void* b, size_t count);

/// The error that kBlockExponent allows before rounding, for a block whose largest magnitude is `max`.
double BlockBound(int world_size, double max);

}  // namespace mlnet::perf
