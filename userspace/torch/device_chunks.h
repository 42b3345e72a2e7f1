// SPDX-License-Identifier: Apache-2.0
// How a large tensor of another device is cut: each chunk is a collective of its own, so that one is copied while
// another is on the network.
// Why a pure function of element count and size: every rank must issue the same collectives. Why whole blocks: a
// float's rounding depends on its block (32, 64 or 128 elements), so cutting between blocks changes no bit.
// Why even parts: a short rest would be small enough to be added in rank order instead (JoinOptions::small_bytes).
#pragma once

#include <algorithm>
#include <cstdint>

#include "torch_compat.h"

namespace mlnet::torch_backend {

/// At most so much in one chunk: long enough to hide its two round trips, short enough for a ring of pinned buffers.
constexpr int64_t kChunkBytes = 4 << 20;
/// A multiple of every block of the wire types.
constexpr int64_t kBlockElements = 128;

class Chunks {
 public:
  Chunks(int64_t count, int64_t element_bytes)
      : count_(count), blocks_((count + kBlockElements - 1) / kBlockElements),
        number_((blocks_ * kBlockElements * element_bytes + kChunkBytes - 1) / kChunkBytes) {}

  int64_t number() const { return number_; }
  /// First element of chunk `index`; of the chunk after the last: the number of elements.
  int64_t Begin(int64_t index) const {
    return std::min(count_, blocks_ * index / number_ * kBlockElements);
  }

 private:
  int64_t count_;
  int64_t blocks_;
  int64_t number_;
};

/// Tensors of the CPU stay one collective, and so does what fits into one chunk.
inline bool IsChunked(const at::Tensor& tensor) {
  return !tensor.device().is_cpu() && static_cast<int64_t>(tensor.nbytes()) > kChunkBytes;
}

}  // namespace mlnet::torch_backend
