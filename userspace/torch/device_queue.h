// SPDX-License-Identifier: Apache-2.0
// The group's communicator, with chunked calls. Keeps the order of the calls while one of them is still being issued.
// Why: a chunked call is issued little by little, as host buffers become free. A call that comes meanwhile must not get
// between two chunks, where it would be on this rank only; it waits in a queue, and costs nothing when that is empty.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "device_work.h"
#include "mlnet/communicator.h"

namespace mlnet::torch_backend {

class CallQueue final : public Communicator {
 public:
  explicit CallQueue(std::unique_ptr<Communicator> comm);
  /// Cancels what is not issued yet, and ends what is with kCancelled.
  ~CallQueue() override;

  /// On the caller's thread. Once issuing has failed half-way no call is issued any more: what this rank would send
  /// next has the shape of a chunk that the others still wait for.
  std::shared_ptr<mlnet::Work> Chunked(ChunkedCall call);

  int rank() const override { return comm_->rank(); }
  int world_size() const override { return comm_->world_size(); }
  int classes() const override { return comm_->classes(); }
  size_t block_bytes() const override { return comm_->block_bytes(); }
  std::shared_ptr<mlnet::Work> AllReduce(const void* in, void* out, size_t count, DataType dtype, ReduceOp op,
                                         const CallOptions& options) override;
  std::shared_ptr<mlnet::Work> Reduce(const void* in, void* out, size_t count, DataType dtype, int root, ReduceOp op,
                                      const CallOptions& options) override;
  std::shared_ptr<mlnet::Work> ReduceScatter(const void* in, void* out, size_t count, DataType dtype, ReduceOp op,
                                             const CallOptions& options) override;
  std::shared_ptr<mlnet::Work> Broadcast(void* buffer, size_t bytes, int root, const CallOptions& options) override;
  std::shared_ptr<mlnet::Work> AllGather(const void* in, void* out, size_t bytes, const CallOptions& options) override;
  std::shared_ptr<mlnet::Work> Gather(const void* in, void* out, size_t bytes, int root,
                                      const CallOptions& options) override;
  std::shared_ptr<mlnet::Work> Scatter(const void* in, void* out, size_t bytes, int root,
                                       const CallOptions& options) override;
  std::shared_ptr<mlnet::Work> Barrier(const CallOptions& options) override;
  std::shared_ptr<mlnet::Work> Push(const void* in, size_t count, DataType dtype, const CallOptions& options) override;
  std::shared_ptr<mlnet::Work> Pull(void* out, size_t bytes, const CallOptions& options) override;
  CommStats Stats() const override { return comm_->Stats(); }
  Result<std::unique_ptr<Communicator>> Shrink(const ShrinkOptions& options) override { return comm_->Shrink(options); }
  const ShrinkReport& shrunk() const override { return comm_->shrunk(); }

 private:
  using Call = std::function<std::shared_ptr<mlnet::Work>(Communicator&)>;

  std::shared_ptr<mlnet::Work> InOrder(Call call);
  void Run();

  const std::unique_ptr<Communicator> comm_;
  const std::shared_ptr<DeviceRing> ring_ = std::make_shared<DeviceRing>();
  std::mutex mutex_;  // protects the members below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<QueuedWork>> queue_;  // the first is being issued
  std::optional<Error> broken_;
  bool stop_ = false;
  std::thread thread_;  // started by the first chunked call; most groups have none
};

}  // namespace mlnet::torch_backend
