// SPDX-License-Identifier: Apache-2.0
// mlnet-perf-layers SPEC RANK: one rank of a training that computes nothing. Backward and forward of each layer are waits of
// the length that was measured, since many ranks share few processors; gradients are real, and are summed through the
// scheduler's core over mlnet. An iteration goes from the start of backward to the end of forward, and ranks begin it together.
#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "mlnet-perf/inputs.h"
#include "mlnet-perf/layers_files.h"
#include "mlnet-perf/layers_plan.h"
#include "mlnet-perf/measure.h"
#include "mlnet-perf/shared_area.h"
#include "schedule/core.h"

namespace mlnet::perf {
namespace {

using schedule::Chunk;

constexpr size_t kEdge = 64;  // elements at both ends of each tensor that are checked in every iteration

uint64_t NowNs() { return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()); }

void SleepUntil(uint64_t at_ns) {
  std::this_thread::sleep_until(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(at_ns)));
}

/// The core and its lock. The communicator's thread reports each sum, and starts what comes next.
class Sender {
 public:
  Sender(const Spec& spec, const LayersPlan& plan, Communicator& comm)
      : spec_(spec), plan_(plan), comm_(comm), core_({.policy = plan.policy}, [this](const Chunk& chunk) { Start(chunk); }) {
    for (const PlannedTensor& tensor : plan.tensors) {
      offsets_.push_back(count_);
      count_ += tensor.count;
    }
    done_ns_.resize(plan.tensors.size());
  }
  /// A communicator that has failed ends all that is under way; nothing else is when a rank is done.
  ~Sender() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return num_under_way_ == 0; });
  }
  Sender(const Sender&) = delete;

  uint64_t count() const { return count_; }
  uint64_t offset(size_t tensor) const { return offsets_[tensor]; }
  const std::array<uint64_t, 8>& chunks() const { return chunks_; }

  CallOptions Options(int traffic_class) const {
    CallOptions options;
    options.traffic_class = traffic_class;
    options.timeout = std::chrono::seconds(spec_.timeout_s);
    options.keeps_small = spec_.keeps_small;
    return options;
  }

  /// The tensors of one iteration, in the order in which backward makes them.
  void Begin(const float* in, float* out) {
    std::lock_guard lock(mutex_);
    in_ = in;
    out_ = out;
    std::fill(done_ns_.begin(), done_ns_.end(), 0);
    ids_.resize(plan_.tensors.size());
    for (size_t i = plan_.tensors.size(); i-- > 0;) {
      const PlannedTensor& tensor = plan_.tensors[i];
      ids_[i] = core_.Enqueue({.bytes = tensor.count * sizeof(float), .priority = tensor.priority, .tag = i});
    }
  }
  void NotifyReady(size_t tensor) {
    std::lock_guard lock(mutex_);
    core_.NotifyReady(ids_[tensor]);
  }
  /// When its sum was there.
  Result<uint64_t> WaitFor(size_t tensor) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ns_[tensor] != 0 || error_; });
    if (error_) return tl::make_unexpected(*error_);
    return done_ns_[tensor];
  }

 private:
  // Under the lock, by the core: calls of a class go out in the order in which it starts them.
  void Start(const Chunk& chunk) {
    const uint64_t first = offsets_[chunk.tag] + chunk.offset / sizeof(float);
    ++num_under_way_;
    CallOptions options = Options(chunk.traffic_class);
    options.on_done = [this, chunk](const Result<void>& outcome) { OnDone(chunk, outcome); };
    comm_.AllReduce(in_ + first, out_ + first, chunk.bytes / sizeof(float), DataType::kFloat32, ReduceOp::kSum, options);
    ++chunks_[chunk.traffic_class];
  }

  void OnDone(const Chunk& chunk, const Result<void>& outcome) {
    const uint64_t now_ns = NowNs();
    const std::lock_guard lock(mutex_);
    --num_under_way_;
    if (!outcome && !error_) error_ = outcome.error();
    if (!error_ && !core_.NotifyFinish(chunk)) return;
    done_ns_[chunk.tag] = now_ns;
    changed_.notify_all();
  }

  const Spec& spec_;
  const LayersPlan& plan_;
  Communicator& comm_;
  uint64_t count_ = 0;
  std::vector<uint64_t> offsets_;  // floats

  std::recursive_mutex mutex_;  // guards all below; recursive, as a call that is refused ends within Start
  std::condition_variable_any changed_;
  schedule::Core core_;
  std::vector<schedule::TaskId> ids_;
  std::array<uint64_t, 8> chunks_{};
  const float* in_ = nullptr;
  float* out_ = nullptr;
  std::vector<uint64_t> done_ns_;
  size_t num_under_way_ = 0;
  std::optional<Error> error_;
};

class LayersRank {
 public:
  LayersRank(const Spec& spec, const LayersPlan& plan, int rank, Communicator& comm, SharedArea& area)
      : spec_(spec), plan_(plan), rank_(rank), comm_(comm), area_(area), sender_(spec, plan, comm) {
    in_.resize(sender_.count() + static_cast<size_t>(NumCalls()));
    for (uint64_t i = 0; i < in_.size(); ++i) in_[i] = WholeInput(spec.seed, rank, i);
    out_.resize(sender_.count());
  }

  Result<std::vector<RankRow>> Run() {
    for (int i = 0; i < plan_.rate_calls; ++i) {
      if (auto ok = MeasureRate(); !ok) return tl::make_unexpected(ok.error());
    }
    for (int i = 0; i < plan_.warmup + plan_.iterations; ++i) {
      if (i == plan_.warmup) BeginCounting();
      if (auto ok = Iterate(); !ok) return tl::make_unexpected(ok.error());
      Check();
    }
    area_.Checkpoint(rank_);
    const CommStats stats = comm_.Stats();
    total_.summed_in_kernel = stats.summed_in_kernel;
    total_.summed_in_user_space = stats.summed_in_user_space;
    total_.retransmits = stats.retransmits - retransmits_before_;
    total_.times_ns.assign(sender_.chunks().begin(), sender_.chunks().end());
    return std::vector<RankRow>{rate_, start_, end_, first_wait_, total_};
  }

 private:
  static RankRow Named(const char* name) {
    RankRow row;
    row.variant = name;
    return row;
  }

  int NumCalls() const { return plan_.rate_calls + plan_.warmup + plan_.iterations; }

  // Each call begins one element later: other data in every iteration, at no cost.
  const float* NextInput() { return &in_[++call_ - 1]; }

  Result<void> MeasureRate() {
    area_.Barrier();
    const uint64_t start_ns = NowNs();
    const auto work = comm_.AllReduce(NextInput(), out_.data(), sender_.count(), DataType::kFloat32, ReduceOp::kSum, sender_.Options(0));
    if (auto ok = work->Wait(); !ok) return ok;
    rate_.times_ns.push_back(NowNs() - start_ns);
    return {};
  }

  void BeginCounting() {
    area_.Checkpoint(rank_);
    retransmits_before_ = comm_.Stats().retransmits;
    start_.times_ns.clear();
    end_.times_ns.clear();
    first_wait_.times_ns.clear();
  }

  // Waits end at a time, not after one, so that a late wake-up is not taken for computing.
  Result<void> Iterate() {
    sender_.Begin(NextInput(), out_.data());
    area_.Barrier();
    const uint64_t start_ns = NowNs();
    uint64_t at_ns = start_ns;
    for (size_t i = plan_.tensors.size(); i-- > 0;) {
      at_ns += plan_.tensors[i].backward_ns;
      SleepUntil(at_ns);
      sender_.NotifyReady(i);
    }
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const auto done_ns = sender_.WaitFor(i);
      if (!done_ns) return tl::make_unexpected(done_ns.error());
      if (i == 0) first_wait_.times_ns.push_back(*done_ns > at_ns ? *done_ns - at_ns : 0);
      at_ns = std::max(at_ns, *done_ns) + plan_.tensors[i].forward_ns;
    }
    SleepUntil(at_ns);
    start_.times_ns.push_back(start_ns);
    end_.times_ns.push_back(at_ns);
    return {};
  }

  // One tensor whole, of the others both ends.
  void Check() {
    const size_t whole = static_cast<size_t>(call_) % plan_.tensors.size();
    for (size_t t = 0; t < plan_.tensors.size(); ++t) {
      const uint64_t count = plan_.tensors[t].count;
      const bool is_whole = t == whole || count <= 2 * kEdge;
      for (uint64_t i = 0; i < count; ++i) {
        if (!is_whole && i == kEdge) i = count - kEdge;
        CheckOne(sender_.offset(t) + i);
      }
    }
  }

  void CheckOne(uint64_t index) {
    float sum = 0;
    for (int rank = 0; rank < spec_.world_size; ++rank) sum += WholeInput(spec_.seed, rank, index + call_ - 1);
    total_.wrong += out_[index] != sum;
    ++total_.checked;
  }

  const Spec& spec_;
  const LayersPlan& plan_;
  const int rank_;
  Communicator& comm_;
  SharedArea& area_;
  std::vector<float> in_, out_;  // in use as long as the sender lives
  Sender sender_;
  uint64_t call_ = 0;
  uint64_t retransmits_before_ = 0;
  RankRow rate_ = Named(kRateRow), start_ = Named(kStartRow), end_ = Named(kEndRow), first_wait_ = Named(kFirstWaitRow),
          total_ = Named(kTotalRow);
};

Result<std::vector<RankRow>> Run(const Spec& spec, int rank) {
  const auto plan = LoadPlan(PlanFile(spec));
  if (!plan) return tl::make_unexpected(plan.error());
  auto area = SharedArea::Open(spec.SharedFile(), spec.world_size);
  if (!area) return tl::make_unexpected(area.error());
  auto comm = Communicator::Join(JoinOptionsOf(spec, rank));
  if (!comm) return tl::make_unexpected(comm.error());
  prctl(PR_SET_TIMERSLACK, 1UL);  // waits are as exact as the machine can
  return LayersRank(spec, *plan, rank, **comm, *area).Run();
}

}  // namespace
}  // namespace mlnet::perf

int main(int argc, char** argv) { return mlnet::perf::RankMain(argc, argv, "mlnet-lab layers", mlnet::perf::Run); }
