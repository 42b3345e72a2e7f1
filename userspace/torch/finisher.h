// SPDX-License-Identifier: Apache-2.0
// The thread that completes the works of one process group, in the order in which they were issued.
// Why one thread and FIFO: c10d demands the same order on all ranks, so waiting for the oldest first can
// never wait for something that another rank issues only after a newer one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "work.h"

namespace mlnet::torch_backend {

class Finisher {
 public:
  Finisher();
  ~Finisher();  // completes what is queued first
  Finisher(const Finisher&) = delete;
  Finisher& operator=(const Finisher&) = delete;

  void Add(c10::intrusive_ptr<MlnetWork> work);
  /// Waits until nothing is in flight; false if that took longer than `timeout`.
  bool WaitIdle(std::chrono::milliseconds timeout);

 private:
  void Run();

  std::mutex mutex_;  // protects the members below
  std::condition_variable changed_;
  std::deque<c10::intrusive_ptr<MlnetWork>> queue_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace mlnet::torch_backend
