// SPDX-License-Identifier: Apache-2.0
// Stage 8 of the tensor path: sums of biased lanes become floats again.
// Invariants: one rounding only (to float32), so the same lanes give the same bits on every rank.
// Not here: lanes and R (quantize.h).
#pragma once

#include <cstdint>
#include <span>

#include "quantize.h"

namespace mlnet::worker {

/// `weight` ranks are in the sums. `lanes` may be read up to whole blocks past out.size().
void Dequantize(const void* lanes, const PacketExps& common, const LaneFormat& format, uint32_t weight,
                std::span<float> out);

}  // namespace mlnet::worker
