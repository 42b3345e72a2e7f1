// SPDX-License-Identifier: Apache-2.0
// Elements of the caller's tensors as float32 and back. float16 and bfloat16 are exact in float32.
#pragma once

#include <cstddef>

#include "mlnet/communicator.h"

namespace mlnet::worker {

/// `from` holds `count` elements of kFloat32, kFloat16 or kBFloat16.
void LoadFloats(DataType dtype, const void* from, size_t count, float* to);
/// Rounds to nearest even; too large becomes infinite. NaN stays NaN.
void StoreFloats(DataType dtype, const float* from, size_t count, void* to);

}  // namespace mlnet::worker
