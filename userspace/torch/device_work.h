// SPDX-License-Identifier: Apache-2.0
// A collective of a large tensor of another device as libmlnet's handle: chunk after chunk through host buffers.
//
//   CallQueue's thread    copy chunk k + 1 in, issue it     while it can take a buffer
//   Finisher's thread     wait for chunk k, copy it out, give the buffer back
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "device_chunks.h"
#include "device_ring.h"
#include "device_stream.h"
#include "mlnet/communicator.h"
#include "torch_compat.h"

namespace mlnet::torch_backend {

/// What is issued later, by CallQueue's thread.
class QueuedWork : public mlnet::Work {
 public:
  /// Issues all there is, and returns when that is done. An error: not all was issued.
  virtual Result<void> Issue(Communicator& comm) = 0;
  /// Instead of Issue.
  virtual void Cancel(const Error& why) = 0;
};

/// One collective, element by element, and what it does with each chunk.
struct ChunkedCall {
  at::Tensor tensor;
  bool copies_in = true;   // false: this rank only receives
  bool copies_out = true;  // false: it has the result already
  std::function<std::shared_ptr<mlnet::Work>(Communicator&, void* data, int64_t first, int64_t count)> issue{};
  std::function<void(const at::Tensor& chunk)> finish{};  // on the host, before it is copied out; may be empty
};

class ChunkedWork final : public QueuedWork {
 public:
  /// On the caller's thread: the values are those of everything queued on its stream so far.
  ChunkedWork(ChunkedCall call, std::shared_ptr<DeviceRing> ring);

  Result<void> Issue(Communicator& comm) override;
  void Cancel(const Error& why) override;

  bool IsDone() const override;
  /// Copies results out as they come. Called once, by the Finisher, which sets no time: each chunk has its deadline.
  Result<void> Wait(std::chrono::milliseconds timeout) override;

 private:
  struct Chunk {
    at::Tensor buffer;  // of the ring
    at::Tensor host;    // the part of it that is used
    at::Tensor device;  // where it comes from and goes to
    std::shared_ptr<mlnet::Work> work;
  };

  Result<void> IssueChunks(Communicator& comm);
  std::optional<Chunk> NextChunk();
  Result<void> Finish(Chunk& chunk);
  Result<void> CopyBack();
  std::optional<Error> Failure() const;
  void Fail(const Error& why);
  void EndIssuing();

  const ChunkedCall call_;
  const std::shared_ptr<DeviceRing> ring_;
  const at::Tensor flat_;  // the tensor, or a contiguous copy on its device
  const Chunks chunks_;
  const CallMoment moment_;  // after flat_: it waits for that copy

  mutable std::mutex mutex_;  // protects the members below
  std::condition_variable changed_;
  std::deque<Chunk> issued_;
  bool is_issued_ = false;  // nothing follows
  bool is_done_ = false;
  std::optional<Error> failure_;
};

}  // namespace mlnet::torch_backend
