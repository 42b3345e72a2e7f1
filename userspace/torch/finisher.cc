// SPDX-License-Identifier: Apache-2.0
#include "finisher.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace mlnet::torch_backend {

Finisher::Finisher() : thread_([this] { Run(); }) {}

Finisher::~Finisher() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Finisher::Add(c10::intrusive_ptr<MlnetWork> work) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

bool Finisher::WaitIdle(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return queue_.empty() && !busy_; });
}

void Finisher::Run() {
  const at::NoGradGuard no_grad;  // copying back is not part of anybody's graph
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto work = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    work->Complete();
    work.reset();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace mlnet::torch_backend
