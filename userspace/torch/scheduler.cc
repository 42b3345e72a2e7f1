// SPDX-License-Identifier: Apache-2.0
#include "scheduler.h"

#include <ATen/ATen.h>

#include <condition_variable>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "gil.h"
#include "reduction.h"
#include "rendezvous.h"
#include "staging.h"

namespace mlnet::torch_backend {
namespace {

uint64_t NowNs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

schedule::Policy PolicyOf(uint64_t partition_bytes, uint64_t credit_bytes, const schedule::ClassMap& classes) {
  if (partition_bytes != 0 && partition_bytes < Scheduler::kPartitionMin) {
    throw std::runtime_error("mlnet: partition is " + std::to_string(partition_bytes) + " bytes, must be 0 (whole tensors) or at least " +
                             std::to_string(Scheduler::kPartitionMin));
  }
  return {.partition_bytes = partition_bytes, .classes = classes, .credit_bytes = credit_bytes};
}

schedule::CoreOptions OptionsOf(const SchedulerOptions& options) {
  schedule::CoreOptions core{.policy = PolicyOf(options.partition_bytes, options.credit_bytes, {})};
  for (size_t level = 0; level < core.traffic_class.size(); ++level) {
    core.traffic_class[level] = static_cast<uint8_t>(std::max(options.classes - 1 - static_cast<int>(level), 0));
  }
  return core;
}

}  // namespace

struct Scheduler::State : std::enable_shared_from_this<State> {
  State(const SchedulerOptions& given, std::unique_ptr<CallQueue> communicator)
      : options(given), comm(std::move(communicator)), policy(OptionsOf(given).policy),
        core(OptionsOf(given), [this](const schedule::Chunk& c) { Start(c); }) {}

  struct Task {
    at::Tensor tensor;
    uint64_t bytes = 0;
    uint64_t done_bytes = 0;                    // from its beginning
    std::map<uint64_t, uint64_t> done_early{};  // offset and bytes of chunks behind one that is not done
    uint64_t ready_ns = 0;
    c10::intrusive_ptr<c10::ivalue::Future> future{};
    c10::IValue value{};  // the future's
  };
  struct Finished {
    schedule::Chunk chunk;
    Result<void> outcome;
  };

  void Start(const schedule::Chunk& chunk);
  void OnDone(const schedule::Chunk& chunk, const Result<void>& outcome);
  void Drain();
  void Finish(const Finished& finished);

  const SchedulerOptions options;
  std::unique_ptr<CallQueue> comm;
  // Recursive, since a call may end at once, within Start.
  std::recursive_mutex mutex;  // protects the members below
  std::condition_variable_any changed;
  schedule::Policy policy;
  schedule::Core core;
  std::map<uint64_t, Task> tasks;  // those that are not done
  std::deque<Finished> finished;
  int num_starting = 0;
  std::string failure;
  bool is_tracing = false;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> sent_ns;  // of (task, offset), while tracing
  std::vector<ChunkTimes> trace;
};

// REQUIRES: mutex.
void Scheduler::State::Start(const schedule::Chunk& chunk) {
  if (!failure.empty()) return;
  const Task& task = tasks.at(chunk.task);
  const Reduction reduction = *ReductionOf(task.tensor.scalar_type(), c10d::ReduceOp::SUM);
  CallOptions call;
  call.traffic_class = chunk.traffic_class;
  call.is_part = chunk.count > 1;
  if (options.wire) {
    call.wire = *options.wire;
    call.keeps_small = false;
  }
  call.on_done = [self = shared_from_this(), chunk](const Result<void>& outcome) { self->OnDone(chunk, outcome); };
  if (is_tracing) sent_ns[{chunk.task, chunk.offset}] = NowNs();
  auto* data = static_cast<std::byte*>(task.tensor.data_ptr()) + chunk.offset;
  ++num_starting;
  comm->AllReduce(data, data, chunk.bytes / static_cast<uint64_t>(task.tensor.element_size()), reduction.dtype, reduction.op, call);
  --num_starting;
}

void Scheduler::State::OnDone(const schedule::Chunk& chunk, const Result<void>& outcome) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  finished.push_back({chunk, outcome});
  if (num_starting == 0) Drain();  // else by whoever is starting, once libmlnet has returned
}

// REQUIRES: mutex.
void Scheduler::State::Drain() {
  while (!finished.empty()) {
    const Finished next = std::move(finished.front());
    finished.pop_front();
    Finish(next);
  }
  changed.notify_all();
}

void Scheduler::State::Finish(const Finished& next) {
  const schedule::Chunk& chunk = next.chunk;
  const auto found = tasks.find(chunk.task);
  if (found == tasks.end()) return;
  Task& task = found->second;
  if (!next.outcome) {
    if (failure.empty()) failure = "mlnet: a scheduled sum: " + next.outcome.error().ToString();
    for (auto& [id, open] : tasks) {
      if (open.future) std::exchange(open.future, {})->setError(std::make_exception_ptr(std::runtime_error(failure)));
    }
    return;
  }
  if (is_tracing) {
    trace.push_back({chunk.task, chunk.offset, chunk.bytes, chunk.traffic_class, task.ready_ns, sent_ns[{chunk.task, chunk.offset}], NowNs()});
    sent_ns.erase({chunk.task, chunk.offset});
  }
  task.done_early[chunk.offset] = chunk.bytes;
  for (auto it = task.done_early.begin(); it != task.done_early.end() && it->first == task.done_bytes; it = task.done_early.erase(it)) {
    task.done_bytes += it->second;
  }
  const bool is_whole = core.NotifyFinish(chunk);
  if (!is_whole) return;
  const Task done = std::move(task);
  tasks.erase(found);
  if (done.future) done.future->markCompleted(done.value);
}

Scheduler::Scheduler(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout, const SchedulerOptions& options) {
  const WithoutGil no_gil;
  if (options.classes < 1 || options.classes > static_cast<int>(schedule::kLevelsMax)) {
    throw std::runtime_error("mlnet: classes is " + std::to_string(options.classes) + ", must be 1 to 8");
  }
  PolicyOf(options.partition_bytes, options.credit_bytes, {});  // before anybody waits
  Membership membership = JoinThroughStore(store, rank, size, timeout, {options.classes, options.mac});
  job_ = membership.job;
  if (membership.comm->classes() < options.classes) {
    throw std::runtime_error("mlnet: job " + job_ + " has " + std::to_string(membership.comm->classes()) + " traffic classes, not " +
                             std::to_string(options.classes));
  }
  state_ = std::make_shared<State>(options, std::move(membership.comm));
}

Scheduler::~Scheduler() {
  const WithoutGil no_gil;
  if (!state_) return;
  // Its thread ends with it, and with that every call-back; the state must not end on that thread.
  state_->comm.reset();
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  state_->tasks.clear();
}

void Scheduler::SetDemands(const std::vector<schedule::TensorDemand>& demands) {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  state_->policy.classes = schedule::MapBytes(demands, static_cast<size_t>(state_->options.classes));
  state_->core.SetPolicy(state_->policy);
}

void Scheduler::SetSizes(uint64_t partition_bytes, uint64_t credit_bytes) {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  state_->policy = PolicyOf(partition_bytes, credit_bytes, state_->policy.classes);
  state_->core.SetPolicy(state_->policy);
  state_->Drain();
}

uint64_t Scheduler::Add(const at::Tensor& tensor, uint32_t priority) {
  CheckTensor(tensor, "a scheduled sum");
  if (!tensor.is_floating_point() || !tensor.is_contiguous() || !tensor.device().is_cpu() || tensor.numel() == 0) {
    throw std::runtime_error("mlnet: a scheduled sum takes contiguous float tensors of the CPU, not " + DtypeName(tensor) +
                             c10::str(tensor.sizes()) + " on " + tensor.device().str());
  }
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  if (!state_->failure.empty()) throw std::runtime_error(state_->failure);
  const auto bytes = static_cast<uint64_t>(tensor.numel() * tensor.element_size());
  const uint64_t id = state_->core.Enqueue({.bytes = bytes, .priority = priority, .align_bytes = 128 * static_cast<uint64_t>(tensor.element_size())});
  state_->tasks[id] = {.tensor = tensor, .bytes = bytes, .ready_ns = NowNs()};
  state_->core.NotifyReady(id);
  state_->Drain();
  return id;
}

void Scheduler::WaitFor(uint64_t id, int64_t first, int64_t count) {
  std::unique_lock<std::recursive_mutex> lock(state_->mutex);
  state_->changed.wait(lock, [&] {
    if (!state_->failure.empty()) return true;
    const auto task = state_->tasks.find(id);
    if (task == state_->tasks.end()) return true;
    const auto end = static_cast<uint64_t>((first + count) * task->second.tensor.element_size());
    return task->second.done_bytes >= std::min(end, task->second.bytes);
  });
  if (!state_->failure.empty()) throw std::runtime_error(state_->failure);
}

c10::intrusive_ptr<c10::ivalue::Future> Scheduler::FutureOf(uint64_t id, c10::IValue value) {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  auto future = c10::make_intrusive<c10::ivalue::Future>(value.type());
  const auto task = state_->tasks.find(id);
  if (!state_->failure.empty()) {
    future->setError(std::make_exception_ptr(std::runtime_error(state_->failure)));
  } else if (task == state_->tasks.end()) {
    future->markCompleted(std::move(value));
  } else {
    task->second.future = future;
    task->second.value = std::move(value);
  }
  return future;
}

bool Scheduler::IsIdle() {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  return state_->tasks.empty();
}

CommStats Scheduler::Stats() const { return state_->comm->Stats(); }

void Scheduler::SetTrace(bool is_on) {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  state_->is_tracing = is_on;
}

std::vector<ChunkTimes> Scheduler::TakeTrace() {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  return std::exchange(state_->trace, {});
}

}  // namespace mlnet::torch_backend
