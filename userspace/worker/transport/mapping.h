// SPDX-License-Identifier: Apache-2.0
// Owner of one mmap. Move-only.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include "base/errno_error.h"

namespace mlnet::worker {

class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping() {
    if (address_ != nullptr) ::munmap(address_, bytes_);
  }

  static Result<Mapping> Map(const std::string& what, int fd, size_t bytes, int protection,
                             size_t offset = 0) {
    void* address = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, static_cast<off_t>(offset));
    if (address == MAP_FAILED) return tl::make_unexpected(ErrnoError("map the " + what, errno));
    Mapping mapping;
    mapping.address_ = address;
    mapping.bytes_ = bytes;
    return mapping;
  }

  template <typename T>
  T* As(size_t offset = 0) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(address_) + offset);
  }

 private:
  void* address_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace mlnet::worker
