// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <sys/mman.h>

#include <memory>
#include <vector>

namespace mlnet::test_device {
namespace {

class Memory {
 public:
  explicit Memory(size_t bytes) : values_(bytes) {
    void* address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(address != MAP_FAILED, "the test device has no address for ", bytes, " bytes");
    address_ = static_cast<char*>(address);
  }
  ~Memory() { munmap(address_, values_.size()); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  char* address() const { return address_; }
  char* values() { return values_.data(); }

 private:
  std::vector<char> values_;
  char* address_ = nullptr;
};

void Free(void* memory) { delete static_cast<Memory*>(memory); }

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const override {
    if (bytes == 0) return {nullptr, kDevice};
    auto memory = std::make_unique<Memory>(bytes);
    char* address = memory->address();
    return {address, memory.release(), &Free, kDevice};
  }
};

}  // namespace

c10::Allocator& TheAllocator() {
  static Allocator allocator;
  return allocator;
}

int64_t OffsetOf(const at::Tensor& tensor) {
  return tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
}

at::Tensor OnHost(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  const auto options = at::TensorOptions(tensor.scalar_type());
  auto* memory = static_cast<Memory*>(tensor.storage().data_ptr().get_context());
  if (memory == nullptr) return at::empty(tensor.sizes(), options);
  return at::from_blob(memory->values() + OffsetOf(tensor), tensor.sizes(), tensor.strides(), options);
}

}  // namespace mlnet::test_device
