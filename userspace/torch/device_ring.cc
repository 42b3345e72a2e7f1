// SPDX-License-Identifier: Apache-2.0
#include "device_ring.h"

#include <ATen/ATen.h>

#include <utility>

#include "device_chunks.h"

namespace mlnet::torch_backend {

at::Tensor DeviceRing::Take(c10::Device device) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || !free_.empty() || made_ < kRingBuffers; });
  if (stopped_) return {};
  if (free_.empty()) {
    // Pinned where the device gains from it.
    at::Tensor buffer = at::empty({kChunkBytes}, at::TensorOptions(at::kByte).pinned_memory(device.is_cuda()));
    ++made_;
    return buffer;
  }
  at::Tensor buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

void DeviceRing::Give(at::Tensor buffer) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(buffer));
  }
  changed_.notify_all();
}

void DeviceRing::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

}  // namespace mlnet::torch_backend
