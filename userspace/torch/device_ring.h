// SPDX-License-Identifier: Apache-2.0
// The host buffers that chunks of other devices pass through: a few per group, whatever the size of the tensors.
#pragma once

#include <condition_variable>
#include <mutex>

#include "torch_compat.h"

namespace mlnet::torch_backend {

/// One is copied in, two are on the network (the second's probes hide behind the first), one is copied out.
constexpr size_t kRingBuffers = 4;

class DeviceRing {
 public:
  /// A buffer of kChunkBytes for tensors of `device`, as soon as one is free. Undefined once the ring is stopped.
  at::Tensor Take(c10::Device device);
  void Give(at::Tensor buffer);
  /// Takes fail from now on.
  void Stop();

 private:
  std::mutex mutex_;  // protects the members below
  std::condition_variable changed_;
  Tensors free_;
  size_t made_ = 0;
  bool stopped_ = false;
};

}  // namespace mlnet::torch_backend
