// SPDX-License-Identifier: Apache-2.0
#include "device_work.h"

#include <ATen/ATen.h>

#include <exception>
#include <utility>

#include "staging.h"

namespace mlnet::torch_backend {
namespace {

// ATen reports by exceptions, libmlnet's handles by values.
template <typename Action>
Result<void> Catching(const Action& action) {
  try {
    return action();
  } catch (const std::exception& error) {
    return Err(ErrorCode::kSystem, std::string("a copy between device and host failed: ") + error.what());
  }
}

at::Tensor Flat(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return tensor.detach().resolve_conj().resolve_neg().contiguous().view({-1});
}

}  // namespace

ChunkedWork::ChunkedWork(ChunkedCall call, std::shared_ptr<DeviceRing> ring)
    : call_(std::move(call)), ring_(std::move(ring)), flat_(Flat(call_.tensor)),
      chunks_(flat_.numel(), static_cast<int64_t>(flat_.element_size())), moment_(flat_.device()) {}

Result<void> ChunkedWork::Issue(Communicator& comm) {
  auto done = Catching([&] { return IssueChunks(comm); });
  if (!done) Fail(done.error());
  EndIssuing();
  return done;
}

void ChunkedWork::Cancel(const Error& why) {
  Fail(why);
  EndIssuing();
}

Result<void> ChunkedWork::IssueChunks(Communicator& comm) {
  const SideStream side(moment_);
  for (int64_t k = 0; k < chunks_.number(); ++k) {
    // Once a chunk has failed, so would the rest.
    if (const auto failure = Failure()) return tl::make_unexpected(*failure);
    at::Tensor buffer = ring_->Take(flat_.device());
    if (!buffer.defined()) return Err(ErrorCode::kCancelled, "the process group was closed");
    const int64_t first = chunks_.Begin(k);
    const int64_t count = chunks_.Begin(k + 1) - first;
    const at::Tensor host =
        buffer.narrow(0, 0, count * static_cast<int64_t>(flat_.element_size())).view(flat_.scalar_type());
    const at::Tensor device = flat_.narrow(0, first, count);
    // Blocking, which is what makes it safe to issue: this thread has nothing else to do.
    if (call_.copies_in) host.copy_(device);
    auto work = call_.issue(comm, host.data_ptr(), first, count);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      issued_.push_back({std::move(buffer), host, device, std::move(work)});
    }
    changed_.notify_all();
  }
  return {};
}

Result<void> ChunkedWork::Wait(std::chrono::milliseconds) {
  {
    const SideStream side(moment_);
    while (auto chunk = NextChunk()) {
      // Even when one has failed: its buffer must outlive the others.
      auto done = chunk->work->Wait();
      if (done && !Failure()) done = Finish(*chunk);
      if (!done) Fail(done.error());
      chunk->work.reset();
      ring_->Give(std::move(chunk->buffer));
    }
    if (!Failure()) {
      if (auto done = CopyBack(); !done) Fail(done.error());
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  is_done_ = true;
  if (failure_) return tl::make_unexpected(*failure_);
  return {};
}

std::optional<ChunkedWork::Chunk> ChunkedWork::NextChunk() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return is_issued_ || !issued_.empty(); });
  if (issued_.empty()) return std::nullopt;
  Chunk chunk = std::move(issued_.front());
  issued_.pop_front();
  return chunk;
}

Result<void> ChunkedWork::Finish(Chunk& chunk) {
  return Catching([&]() -> Result<void> {
    if (call_.finish) call_.finish(chunk.host);
    if (call_.copies_out) chunk.device.copy_(chunk.host);
    return {};
  });
}

// Into a tensor that is not contiguous.
Result<void> ChunkedWork::CopyBack() {
  return Catching([&]() -> Result<void> {
    const bool is_copy = flat_.data_ptr() != call_.tensor.data_ptr();
    if (is_copy && call_.copies_out) torch_backend::CopyBack(flat_, call_.tensor);
    return {};
  });
}

bool ChunkedWork::IsDone() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return is_done_;
}

std::optional<Error> ChunkedWork::Failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void ChunkedWork::Fail(const Error& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failure_) failure_ = why;
}

void ChunkedWork::EndIssuing() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_issued_ = true;
  }
  changed_.notify_all();
}

}  // namespace mlnet::torch_backend
