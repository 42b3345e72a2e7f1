// SPDX-License-Identifier: Apache-2.0
// Memory that all ranks of a turn share, since they run on one machine: a barrier that is no backend's, so
// that all start alike, moments at which nobody sends and counters can be read, and room to compare results
// without sending them.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "mlnet/error.h"

namespace mlnet::perf {

class SharedArea {
 public:
  static constexpr size_t kPieceBytes = 1 << 20;  // compared at a time: whole elements of any type
  static constexpr size_t kVariantsMax = 8;

  /// By the one who starts the ranks.
  static Result<void> Create(const std::string& path, int world_size);
  /// By a rank.
  static Result<SharedArea> Open(const std::string& path, int world_size);

  SharedArea(SharedArea&& other) noexcept;
  SharedArea(const SharedArea&) = delete;
  SharedArea& operator=(SharedArea&&) = delete;
  ~SharedArea();

  /// Returns when every rank is here. A rank that died is noticed by the one who started them.
  void Barrier();
  /// By every rank: returns when the one who started them has answered. No rank sends in the meantime.
  void Checkpoint(int rank);
  /// By the one who started them: whether a checkpoint waits for Answer.
  bool IsAsked() const;
  void Answer();
  void* Piece(int rank);
  /// Where rank leaves how long a variant took it.
  uint64_t& VariantNs(int rank, size_t variant);

 private:
  struct Header {
    pthread_barrier_t barrier;
    std::atomic<uint32_t> asked;  // checkpoints so far
    std::atomic<uint32_t> answered;
  };
  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  SharedArea(void* base, size_t bytes) : base_(static_cast<char*>(base)), bytes_(bytes) {}
  static size_t BytesFor(int world_size);

  char* base_;
  size_t bytes_;
};

}  // namespace mlnet::perf
