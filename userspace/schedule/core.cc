// SPDX-License-Identifier: Apache-2.0
#include "schedule/core.h"

#include <algorithm>
#include <utility>

namespace mlnet::schedule {
namespace {

struct Cut {
  uint64_t begin = 0, end = 0;
};

uint64_t BlocksOf(const TaskSpec& spec) { return (spec.bytes + spec.align_bytes - 1) / spec.align_bytes; }

uint32_t NumChunks(const TaskSpec& spec, uint64_t partition_bytes) {
  if (partition_bytes == 0 || spec.bytes <= partition_bytes) return 1;
  const uint64_t blocks_max = std::max<uint64_t>(1, partition_bytes / spec.align_bytes);
  return static_cast<uint32_t>((BlocksOf(spec) + blocks_max - 1) / blocks_max);
}

// Even parts: a short rest would cost as much as a whole chunk, and might be small enough to be summed another way.
Cut CutOf(const TaskSpec& spec, uint32_t index, uint32_t count) {
  if (count == 1) return {0, spec.bytes};
  const uint64_t blocks = BlocksOf(spec);
  const auto border = [&](uint64_t i) { return std::min(spec.bytes, blocks * i / count * spec.align_bytes); };
  return {border(index), border(uint64_t{index} + 1)};
}

}  // namespace

Core::Core(const CoreOptions& options, std::function<void(const Chunk&)> start)
    : policy_(options.policy), traffic_class_(options.traffic_class), start_(std::move(start)) {}

TaskId Core::Enqueue(const TaskSpec& spec) {
  const TaskId id = first_id_ + tasks_.size();
  Task& task = tasks_.emplace_back();
  task.spec = spec;
  task.spec.align_bytes = std::max<uint64_t>(spec.align_bytes, 1);
  task.level = static_cast<uint8_t>(policy_.classes.LevelOf(spec.priority));
  task.is_immediate = policy_.is_immediate;
  task.num_chunks = NumChunks(task.spec, policy_.partition_bytes);
  ++num_open_;
  const TaskId leader = spec.follows;
  if (leader >= first_id_ && leader < id) TaskOf(leader).follower = id;
  Append(id, task);
  if (leader != kNoTask) {
    AllowAfter(leader, task);
    Pump();
  }
  return id;
}

void Core::Append(TaskId id, Task& task) {
  Level& level = levels_[task.level];
  if (level.head == kNoTask) {
    level.head = id;
  } else {
    TaskOf(level.tail).next = id;
  }
  level.tail = id;
}

void Core::NotifyReady(TaskId id) {
  Task& task = TaskOf(id);
  task.num_allowed = task.num_chunks;
  LookAtHead(task.level);
  Pump();
}

bool Core::NotifyFinish(const Chunk& chunk) {
  levels_[chunk.level].in_flight_bytes -= chunk.bytes;
  in_flight_bytes_ -= chunk.bytes;
  Task& task = TaskOf(chunk.task);
  Finish(task, chunk.index);
  const bool is_last = task.num_finished == task.num_chunks;
  if (task.follower != kNoTask) AllowAfter(chunk.task, TaskOf(task.follower));
  if (is_last) {
    --num_open_;
    Retire();
  }
  Pump();
  return is_last;
}

void Core::SetPolicy(const Policy& policy) {
  policy_ = policy;
  Pump();
}

void Core::Finish(Task& task, uint32_t index) {
  if (index != task.num_finished) {
    task.finished_early.push_back(index);
    return;
  }
  ++task.num_finished;
  while (std::erase(task.finished_early, task.num_finished) > 0) ++task.num_finished;
}

void Core::AllowAfter(TaskId leader, Task& task) {
  const Task* open = leader < first_id_ ? nullptr : &TaskOf(leader);
  if (!open || open->num_finished == open->num_chunks) {
    task.num_allowed = task.num_chunks;
  } else if (task.is_immediate && open->num_chunks == task.num_chunks) {
    task.num_allowed = open->num_finished;
  }
  LookAtHead(task.level);
}

void Core::Retire() {
  while (!tasks_.empty() && tasks_.front().num_finished == tasks_.front().num_chunks) {
    tasks_.pop_front();
    ++first_id_;
  }
}

void Core::LookAtHead(size_t level) {
  const TaskId head = levels_[level].head;
  const bool is_startable = head != kNoTask && TaskOf(head).num_started < TaskOf(head).num_allowed;
  const uint32_t bit = 1u << level;
  startable_ = is_startable ? startable_ | bit : startable_ & ~bit;
}

// Credit is one account for all levels, but where nothing of its own or of a more urgent level is under way, a chunk starts
// without any. So the urgent starts at once when the others have spent all of it. And ranks cannot wait for each other for
// ever: one that spent it on one class would wait for one that spent it on another, and neither would start what the other
// lacks (DESIGN.md).
size_t Core::NextLevel() const {
  const bool has_credit = policy_.credit_bytes == 0 || in_flight_bytes_ < policy_.credit_bytes;
  for (uint32_t level = 0; (startable_ >> level) != 0; ++level) {
    const uint64_t own = levels_[level].in_flight_bytes, window = policy_.window_bytes[level];
    if (!has_credit && own > 0) return kLevelsMax;
    if ((startable_ >> level & 1) != 0 && (window == 0 || own < window)) return level;
  }
  return kLevelsMax;
}

void Core::StartOne(size_t level) {
  Level& from = levels_[level];
  const TaskId id = from.head;
  Task& task = TaskOf(id);
  const uint32_t index = task.num_started++;
  const Cut cut = CutOf(task.spec, index, task.num_chunks);
  const Chunk chunk{.task = id,
                    .tag = task.spec.tag,
                    .offset = cut.begin,
                    .bytes = cut.end - cut.begin,
                    .index = index,
                    .count = task.num_chunks,
                    .level = static_cast<uint8_t>(level),
                    .traffic_class = traffic_class_[level]};
  from.in_flight_bytes += chunk.bytes;
  in_flight_bytes_ += chunk.bytes;
  if (task.num_started == task.num_chunks) from.head = task.next;
  LookAtHead(level);
  start_(chunk);  // may finish it at once, and the task with it
}

void Core::Pump() {
  if (is_pumping_) return;  // called from `start`: the loop goes on there
  is_pumping_ = true;
  for (size_t level = NextLevel(); level < kLevelsMax; level = NextLevel()) StartOne(level);
  is_pumping_ = false;
}

}  // namespace mlnet::schedule
