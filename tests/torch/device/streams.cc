// SPDX-License-Identifier: Apache-2.0
#include "streams.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

#include "journal.h"
#include "memory.h"

namespace mlnet::test_device {
namespace {

thread_local int64_t current_stream = 0;
std::atomic<int64_t> last_stream{0};
std::atomic<int64_t> last_event{0};

c10::Stream StreamOf(int64_t id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDevice.type(); }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const noexcept override { return StreamOf(current_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return StreamOf(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return StreamOf(++last_stream); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const int64_t before = current_stream;
    current_stream = stream.id();
    return StreamOf(before);
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override {
    TheJournal().Add({.what = "synchronize", .stream = stream.id()});
  }

  // An event is its number.
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    const int64_t number = ++last_event;
    *event = reinterpret_cast<void*>(number);
    TheJournal().Add({.what = "record", .number = number, .stream = stream.id()});
  }
  void block(void* event, const c10::Stream& stream) const override {
    TheJournal().Add({.what = "block", .number = reinterpret_cast<int64_t>(event), .stream = stream.id()});
  }
  bool queryEvent(void*) const override { return true; }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

int64_t CurrentStream() { return current_stream; }

}  // namespace mlnet::test_device
