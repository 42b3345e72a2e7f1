// SPDX-License-Identifier: Apache-2.0
// float16 at the speed of the processor: what a hook that compresses gradients for a peer costs at least. Gloo's own sum
// of float16 is scalar where it was not compiled for AVX, as Debian's is not; that would be no rival.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mlnet::perf {

/// To the nearest float16, ties to even.
void NarrowToHalf(const float* from, uint16_t* to, size_t count);
void WidenFromHalf(const uint16_t* from, float* to, size_t count);
/// c[i] = a[i] + b[i], rounded once. c may be a or b.
void AddHalf(uint16_t* c, const uint16_t* a, const uint16_t* b, size_t count);

}  // namespace mlnet::perf
