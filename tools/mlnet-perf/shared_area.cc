// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/shared_area.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/errno_error.h"
#include "base/fd.h"

namespace mlnet::perf {
namespace {

constexpr size_t kHeaderBytes = 4096;
constexpr std::chrono::microseconds kAnswerPoll{200};
constexpr size_t kRankBytes = 4096 + SharedArea::kPieceBytes;

Result<void*> Map(int fd, size_t bytes, const std::string& path) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return tl::make_unexpected(ErrnoError("map " + path, errno));
  return base;
}

}  // namespace

size_t SharedArea::BytesFor(int world_size) {
  return kHeaderBytes + static_cast<size_t>(world_size) * kRankBytes;
}

Result<void> SharedArea::Create(const std::string& path, int world_size) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return tl::make_unexpected(ErrnoError("create " + path, errno));
  const size_t bytes = BytesFor(world_size);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return tl::make_unexpected(ErrnoError("size " + path, errno));
  const auto base = Map(fd.get(), bytes, path);
  if (!base) return tl::make_unexpected(base.error());
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  const int err = pthread_barrier_init(&static_cast<Header*>(*base)->barrier, &attributes,
                                       static_cast<unsigned>(world_size));
  pthread_barrierattr_destroy(&attributes);
  ::munmap(*base, bytes);
  if (err != 0) return tl::make_unexpected(ErrnoError("make a barrier in " + path, err));
  return {};
}

Result<SharedArea> SharedArea::Open(const std::string& path, int world_size) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return tl::make_unexpected(ErrnoError("open " + path, errno));
  const size_t bytes = BytesFor(world_size);
  const auto base = Map(fd.get(), bytes, path);
  if (!base) return tl::make_unexpected(base.error());
  return SharedArea(*base, bytes);
}

SharedArea::SharedArea(SharedArea&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}

SharedArea::~SharedArea() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

void SharedArea::Barrier() { pthread_barrier_wait(&header().barrier); }

void SharedArea::Checkpoint(int rank) {
  Barrier();
  if (rank == 0) {
    const uint32_t number = ++header().asked;
    while (header().answered != number) std::this_thread::sleep_for(kAnswerPoll);
  }
  Barrier();
}

bool SharedArea::IsAsked() const { return header().asked != header().answered; }
void SharedArea::Answer() { ++header().answered; }

uint64_t& SharedArea::VariantNs(int rank, size_t variant) {
  return reinterpret_cast<uint64_t*>(base_ + kHeaderBytes + static_cast<size_t>(rank) * kRankBytes)[variant];
}

void* SharedArea::Piece(int rank) {
  return base_ + kHeaderBytes + static_cast<size_t>(rank) * kRankBytes + 4096;
}

}  // namespace mlnet::perf
