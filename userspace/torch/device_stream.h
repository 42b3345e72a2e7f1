// SPDX-License-Identifier: Apache-2.0
// Order between the caller's stream and the threads that copy for it, for any device that has streams.
// Uses c10's own interface of devices only, so that it builds without CUDA.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>

namespace mlnet::torch_backend {

/// Waits for what this thread has queued on the device.
inline void Synchronize(c10::Device device) {
  if (!c10::impl::hasDeviceGuardImpl(device.type())) return;
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

/// What the calling thread has queued on its current stream so far.
class CallMoment {
 public:
  explicit CallMoment(c10::Device device) : device_(device) {
    if (!c10::impl::hasDeviceGuardImpl(device.type())) return;
    event_ = std::make_unique<c10::Event>(device.type());
    event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }

  c10::Device device() const { return device_; }
  /// Null on a device without streams.
  const c10::Event* event() const { return event_.get(); }

 private:
  c10::Device device_;
  std::unique_ptr<c10::Event> event_;
};

/// Within its scope this thread works on a stream of its own that starts after `moment`.
/// Why not on the thread's default stream: there the copies would stand behind whatever the caller computes meanwhile.
class SideStream {
 public:
  explicit SideStream(const CallMoment& moment) {
    if (moment.event() == nullptr) return;
    const c10::impl::VirtualGuardImpl impl(moment.device().type());
    const c10::Stream stream = impl.getStreamFromGlobalPool(moment.device());
    moment.event()->block(stream);
    guard_.reset_stream(stream);
  }

 private:
  c10::OptionalStreamGuard guard_;
};

}  // namespace mlnet::torch_backend
