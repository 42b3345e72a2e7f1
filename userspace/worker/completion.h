// SPDX-License-Identifier: Apache-2.0
// Stage 9 of the tensor path: the handle a caller waits on.
// Invariants: completed once; what came first stays. Thread-safe; everything else in the engine is not.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "mlnet/communicator.h"

namespace mlnet::worker {

class WorkState final : public Work {
 public:
  /// An already finished handle, or a running one.
  static std::shared_ptr<WorkState> Done(Result<void> outcome);
  explicit WorkState(std::function<void(const Result<void>&)> on_done = {}) : on_done_(std::move(on_done)) {}

  bool IsDone() const override { return is_done_.load(std::memory_order_acquire); }
  Result<void> Wait(std::chrono::milliseconds timeout) override;
  void Complete(Result<void> outcome);

 private:
  std::atomic<bool> is_done_{false};
  std::mutex mutex_;
  std::condition_variable done_;  // with mutex_
  Result<void> outcome_;          // guarded by mutex_; constant once is_done_
  std::function<void(const Result<void>&)> on_done_;
};

}  // namespace mlnet::worker
