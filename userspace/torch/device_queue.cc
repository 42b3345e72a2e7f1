// SPDX-License-Identifier: Apache-2.0
#include "device_queue.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace mlnet::torch_backend {
namespace {

const Error kClosed{ErrorCode::kCancelled, "the process group was closed", ""};

// A call that came while a chunked one was being issued.
class LateWork final : public QueuedWork {
 public:
  explicit LateWork(std::function<std::shared_ptr<mlnet::Work>(Communicator&)> call) : call_(std::move(call)) {}

  Result<void> Issue(Communicator& comm) override {
    auto work = call_(comm);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      work_ = std::move(work);
    }
    changed_.notify_all();
    return {};
  }

  void Cancel(const Error& why) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      failure_ = why;
    }
    changed_.notify_all();
  }

  bool IsDone() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_ || (work_ && work_->IsDone());
  }

  // Being issued has no deadline of its own; every chunk before it has one.
  Result<void> Wait(std::chrono::milliseconds timeout) override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return failure_ || work_; });
    if (failure_) return tl::make_unexpected(*failure_);
    lock.unlock();
    return work_->Wait(timeout);  // set once
  }

 private:
  const std::function<std::shared_ptr<mlnet::Work>(Communicator&)> call_;
  mutable std::mutex mutex_;  // protects the members below
  std::condition_variable changed_;
  std::shared_ptr<mlnet::Work> work_;
  std::optional<Error> failure_;
};

}  // namespace

CallQueue::CallQueue(std::unique_ptr<Communicator> comm) : comm_(std::move(comm)) {}

CallQueue::~CallQueue() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  ring_->Stop();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<mlnet::Work> CallQueue::Chunked(ChunkedCall call) {
  auto work = std::make_shared<ChunkedWork>(std::move(call), ring_);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  queue_.push_back(work);
  changed_.notify_all();
  return work;
}

std::shared_ptr<mlnet::Work> CallQueue::InOrder(Call call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (queue_.empty() && !broken_) return call(*comm_);
  auto work = std::make_shared<LateWork>(std::move(call));
  queue_.push_back(work);
  changed_.notify_all();
  return work;
}

void CallQueue::Run() {
  const at::NoGradGuard no_grad;  // copying is not part of anybody's graph
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    if (stop_ && !broken_) broken_ = kClosed;
    const auto work = queue_.front();
    const auto broken = broken_;
    lock.unlock();
    Result<void> done;
    if (broken) {
      work->Cancel(*broken);
    } else {
      done = work->Issue(*comm_);
    }
    lock.lock();
    if (!done && !broken_) broken_ = done.error();
    queue_.pop_front();
  }
}

std::shared_ptr<mlnet::Work> CallQueue::AllReduce(const void* in, void* out, size_t count, DataType dtype, ReduceOp op,
                                                  const CallOptions& options) {
  return InOrder([=](Communicator& comm) { return comm.AllReduce(in, out, count, dtype, op, options); });
}

std::shared_ptr<mlnet::Work> CallQueue::Reduce(const void* in, void* out, size_t count, DataType dtype, int root,
                                               ReduceOp op, const CallOptions& options) {
  return InOrder([=](Communicator& comm) { return comm.Reduce(in, out, count, dtype, root, op, options); });
}

std::shared_ptr<mlnet::Work> CallQueue::ReduceScatter(const void* in, void* out, size_t count, DataType dtype,
                                                      ReduceOp op, const CallOptions& options) {
  return InOrder([=](Communicator& comm) { return comm.ReduceScatter(in, out, count, dtype, op, options); });
}

std::shared_ptr<mlnet::Work> CallQueue::Broadcast(void* buffer, size_t bytes, int root, const CallOptions& options) {
  return InOrder([=](Communicator& comm) { return comm.Broadcast(buffer, bytes, root, options); });
}

std::shared_ptr<mlnet::Work> CallQueue::AllGather(const void* in, void* out, size_t bytes,
                                                  const CallOptions& options) {
  return InOrder([=](Communicator& comm) { return comm.AllGather(in, out, bytes, options); });
}

std::shared_ptr<mlnet::Work> CallQueue::Gather(const void* in, void* out, size_t bytes, int root,
                                               const CallOptions& options) {
  return InOrder([=](Communicator& comm) { return comm.Gather(in, out, bytes, root, options); });
}

std::shared_ptr<mlnet::Work> CallQueue::Scatter(const void* in, void* out, size_t bytes, int root,
                                                const CallOptions& options) {
  return InOrder([=](Communicator& comm) { return comm.Scatter(in, out, bytes, root, options); });
}

std::shared_ptr<mlnet::Work> CallQueue::Push(const void* in, size_t count, DataType dtype, const CallOptions& options) {
  return InOrder([=](Communicator& comm) { return comm.Push(in, count, dtype, options); });
}

std::shared_ptr<mlnet::Work> CallQueue::Pull(void* out, size_t bytes, const CallOptions& options) {
  return InOrder([=](Communicator& comm) { return comm.Pull(out, bytes, options); });
}

std::shared_ptr<mlnet::Work> CallQueue::Barrier(const CallOptions& options) {
  return InOrder([=](Communicator& comm) { return comm.Barrier(options); });
}

}  // namespace mlnet::torch_backend
