// SPDX-License-Identifier: Apache-2.0
// Sums of gradients that the scheduler's core (schedule/core.h) orders: cut into chunks, the urgent ones first.
// Why a communicator of its own: its job has all traffic classes, and no other call of the training gets between chunks.
// Threads: Add from the one that produces gradients, WaitFor from the one that needs them, and the communicator's own
// thread, which reports chunks; one lock for all three.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlnet/communicator.h"
#include "schedule/core.h"
#include "torch_compat.h"

namespace mlnet::torch_backend {

struct SchedulerOptions {
  uint64_t partition_bytes = 0;  // 0: tensors stay whole; else at least kPartitionMin
  uint64_t credit_bytes = 0;     // 0: no limit
  int classes = 8;
  bool mac = false;              // packets of the schedule's job carry a tag
  std::optional<WireType> wire;  // none: every element keeps its accuracy, as all_reduce
};

/// What happened to one chunk, in ns of CLOCK_MONOTONIC.
struct ChunkTimes {
  uint64_t task = 0;
  uint64_t offset = 0, bytes = 0;
  int traffic_class = 0;
  uint64_t ready_ns = 0;     // the tensor was added
  uint64_t sent_ns = 0;      // the chunk was handed to libmlnet
  uint64_t received_ns = 0;  // its sum was there
};

class Scheduler {
 public:
  static constexpr uint64_t kPartitionMin = 32 << 10;

  /// Joins a job of its own through `store`; throws as a process group does.
  Scheduler(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout, const SchedulerOptions& options);
  /// Sums that are not done end with E_CANCELLED.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Which priorities there are, with their bytes: they are spread over the classes by it. The same on all ranks, at the
  /// same place among the calls of Add, as the next one.
  void SetDemands(const std::vector<schedule::TensorDemand>& demands);
  void SetSizes(uint64_t partition_bytes, uint64_t credit_bytes);
  /// Sums a contiguous float tensor in place. Priority 0 is the most urgent. Same calls in the same order on all ranks.
  uint64_t Add(const at::Tensor& tensor, uint32_t priority);
  /// Until elements [first, first + count) of that tensor are summed. Throws when a sum failed.
  void WaitFor(uint64_t task, int64_t first, int64_t count);
  /// A future that has `value` when that task is done.
  c10::intrusive_ptr<c10::ivalue::Future> FutureOf(uint64_t task, c10::IValue value);
  bool IsIdle();
  std::string job() const { return job_; }
  CommStats Stats() const;

  void SetTrace(bool is_on);
  std::vector<ChunkTimes> TakeTrace();

 private:
  struct State;
  std::string job_;
  std::shared_ptr<State> state_;  // call-backs hold it, too
};

}  // namespace mlnet::torch_backend
