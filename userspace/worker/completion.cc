// SPDX-License-Identifier: Apache-2.0
#include "completion.h"

#include <utility>

namespace mlnet::worker {

std::shared_ptr<WorkState> WorkState::Done(Result<void> outcome) {
  auto work = std::make_shared<WorkState>();
  work->Complete(std::move(outcome));
  return work;
}

Result<void> WorkState::Wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto is_done = [this] { return IsDone(); };
  if (timeout.count() == 0) {
    done_.wait(lock, is_done);  // the engine completes every collective by its deadline
  } else if (!done_.wait_for(lock, timeout, is_done)) {
    return Err(ErrorCode::kTimeout,
               "still running after " + std::to_string(timeout.count()) + " ms of waiting",
               "wait again; the buffers stay in use until the collective is done");
  }
  return outcome_;
}

void WorkState::Complete(Result<void> outcome) {
  {
    std::lock_guard lock(mutex_);
    if (IsDone()) return;
    outcome_ = std::move(outcome);
    is_done_.store(true, std::memory_order_release);
  }
  done_.notify_all();
  if (on_done_) std::exchange(on_done_, nullptr)(outcome_);
}

}  // namespace mlnet::worker
