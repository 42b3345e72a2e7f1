// SPDX-License-Identifier: Apache-2.0
// The scheduler's core (ByteScheduler's): tasks are cut into chunks, and the most urgent one that is ready starts while
// there is credit. Whatever has started is not taken back; what comes next overtakes at the next border of two chunks.
//
//   Core core({.policy = ByteSchedulerPolicy(map)}, [&](const Chunk& c) {
//     works.push_back(comm->AllReduce(data[c.tag] + c.offset, ..., {.traffic_class = c.traffic_class}));
//   });
//   // each step, under the caller's lock:
//   for (tensor : learned.sequence()) id[tensor] = core.Enqueue({.bytes = ..., .priority = ..., .tag = tensor});
//   core.NotifyReady(id[tensor]);                                  // when its gradient is there, in whatever order
//   if (core.NotifyFinish(chunk)) Release(chunk.tag);              // when its Work is done; true: the whole tensor is
//
// Why nobody negotiates: mlnet's ranks must issue the same collectives in the same order within a traffic class, and may
// interleave classes at will. Chunks and class are functions of what is agreed: the task's size and priority, the
// policy, and the order of Enqueue, which must be the same on all ranks. Inside a class chunks start in that order
// alone; a task that is ready waits for those enqueued before it in its class. Ready times, credit and finishes, which
// differ between ranks, only decide how classes interleave.
// Thread safety: none; the caller locks, and holds its lock over the call, so that collectives are issued in the order
// in which the core starts them. `start` is called from within NotifyReady, NotifyFinish and SetPolicy, and may call the
// core.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <vector>

#include "schedule/policy.h"

namespace mlnet::schedule {

/// Numbers tasks from 0 in the order of Enqueue.
using TaskId = uint64_t;
inline constexpr TaskId kNoTask = std::numeric_limits<TaskId>::max();

struct TaskSpec {
  uint64_t bytes = 0;
  uint32_t priority = 0;       // lower is more urgent
  uint64_t align_bytes = 512;  // chunks begin at multiples: 128 elements hold whole blocks of every wire type
  uint64_t tag = 0;            // the caller's
  /// An earlier task with no follower yet: this one is ready not by NotifyReady, but as that one finishes (the pull after a
  /// push). In one class with it, it also keeps those enqueued later waiting.
  TaskId follows = kNoTask;
};

struct Chunk {
  TaskId task = kNoTask;
  uint64_t tag = 0;
  uint64_t offset = 0, bytes = 0;
  uint32_t index = 0, count = 1;
  uint8_t level = 0;
  uint8_t traffic_class = 0;
};

struct CoreOptions {
  Policy policy;
  /// Traffic class of each level, most urgent first; the same on all ranks. Class c has DSCP CSc, so higher is better.
  std::array<uint8_t, kLevelsMax> traffic_class = {7, 6, 5, 4, 3, 2, 1, 0};
};

class Core {
 public:
  Core(const CoreOptions& options, std::function<void(const Chunk&)> start);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// The next place in the order. Same tasks, same order, on all ranks.
  TaskId Enqueue(const TaskSpec& spec);
  /// Once per task that follows nothing.
  void NotifyReady(TaskId id);
  /// Once per chunk started. True: it was the task's last.
  bool NotifyFinish(const Chunk& chunk);
  /// Partition and classes are those of tasks enqueued from now on; credit and windows hold at once.
  void SetPolicy(const Policy& policy);

  uint64_t in_flight_bytes(size_t level) const { return levels_[level].in_flight_bytes; }
  /// Tasks enqueued and not finished.
  uint64_t num_open() const { return num_open_; }

 private:
  struct Task {
    TaskSpec spec;
    uint32_t num_chunks = 1;
    uint32_t num_allowed = 0, num_started = 0, num_finished = 0;  // always the first so many
    std::vector<uint32_t> finished_early;                         // before one in front of them
    uint8_t level = 0;
    bool is_immediate = true;
    TaskId next = kNoTask;  // in its level
    TaskId follower = kNoTask;
  };
  struct Level {
    TaskId head = kNoTask, tail = kNoTask;  // those with chunks left to start
    uint64_t in_flight_bytes = 0;
  };

  Task& TaskOf(TaskId id) { return tasks_[id - first_id_]; }
  void Append(TaskId id, Task& task);
  static void Finish(Task& task, uint32_t index);
  void AllowAfter(TaskId leader, Task& task);
  void Retire();
  void LookAtHead(size_t level);
  size_t NextLevel() const;
  void StartOne(size_t level);
  void Pump();

  Policy policy_;
  std::array<uint8_t, kLevelsMax> traffic_class_;
  std::function<void(const Chunk&)> start_;
  std::array<Level, kLevelsMax> levels_;
  uint64_t in_flight_bytes_ = 0;  // of all levels
  uint32_t startable_ = 0;  // bit per level: its head has a chunk that may start
  std::deque<Task> tasks_;  // references stay valid while `start` enqueues
  TaskId first_id_ = 0;  // of tasks_.front()
  uint64_t num_open_ = 0;
  bool is_pumping_ = false;
};

}  // namespace mlnet::schedule
