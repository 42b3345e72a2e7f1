// SPDX-License-Identifier: Apache-2.0
// mlnet-perf-urgent SPEC RANK: a small tensor while nothing else is sent, while a large one is under way in another
// traffic class, and in the same class behind it. The spec's counts are the large and the small one, its iterations the
// samples of the first two cases, its warmup those of the last.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "mlnet-perf/measure.h"

namespace mlnet::perf {
namespace {

constexpr int kBacklogClass = 0, kUrgentClass = 7;
constexpr uint64_t kUnderWayBytes = 4 << 20;  // so much of the large one is done before the small one begins
constexpr std::chrono::milliseconds kPoll{1};

// Whole numbers, whose sums over all ranks are exact in a float.
float InputOf(int rank, uint64_t index) { return static_cast<float>(index % 509 + static_cast<uint64_t>(rank)); }

class UrgentRank {
 public:
  UrgentRank(const Spec& spec, int rank, std::unique_ptr<Communicator> comm)
      : spec_(spec), rank_(rank), comm_(std::move(comm)), large_(spec.counts[0]), small_(spec.counts[1]) {}

  Result<std::vector<RankRow>> Run() {
    std::vector<RankRow> rows;
    for (const auto& [name, measure] : {std::pair{"idle", &UrgentRank::Idle}, {"behind", &UrgentRank::Behind}, {"fifo", &UrgentRank::Fifo}}) {
      row_ = RankRow{};
      row_.variant = name;
      row_.count = small_.size();
      const CommStats before = comm_->Stats();
      if (auto ok = (this->*measure)(); !ok) return tl::make_unexpected(ok.error());
      const CommStats after = comm_->Stats();
      row_.summed_in_kernel = after.summed_in_kernel - before.summed_in_kernel;
      row_.summed_in_user_space = after.summed_in_user_space - before.summed_in_user_space;
      row_.retransmits = after.retransmits - before.retransmits;
      rows.push_back(row_);
    }
    return rows;
  }

 private:
  Result<void> Idle() {
    for (int i = 0; i < spec_.iterations; ++i) {
      if (auto ok = Sample(kUrgentClass); !ok) return ok;
    }
    return {};
  }

  Result<void> Behind() {
    const auto backlog = StartBacklog();
    for (int i = 0; i < spec_.iterations; ++i) {
      if (auto ok = Sample(kUrgentClass); !ok) return ok;
      if (backlog->IsDone()) {
        if (auto ok = backlog->Wait(); !ok) return ok;
        return Err(ErrorCode::kInvalidArgument, fmt::format("the large tensor was done after {} of {} samples", i, spec_.iterations),
                   "--backlog more, or --samples less");
      }
    }
    return EndBacklog(*backlog);
  }

  Result<void> Fifo() {
    for (int i = 0; i < spec_.warmup; ++i) {
      const auto backlog = StartBacklog();
      if (auto ok = Sample(kBacklogClass); !ok) return ok;
      if (auto ok = EndBacklog(*backlog); !ok) return ok;
    }
    return {};
  }

  std::shared_ptr<Work> AllReduce(std::vector<float>& values, int traffic_class) {
    for (uint64_t i = 0; i < values.size(); ++i) values[i] = InputOf(rank_, i);
    CallOptions options = Options(traffic_class);
    return comm_->AllReduce(values.data(), values.data(), values.size(), DataType::kFloat32, ReduceOp::kSum, options);
  }

  // Returns once it is under way on this rank.
  std::shared_ptr<Work> StartBacklog() {
    const uint64_t before = comm_->Stats().bytes;
    auto work = AllReduce(large_, kBacklogClass);
    while (!work->IsDone() && comm_->Stats().bytes < before + kUnderWayBytes) std::this_thread::sleep_for(kPoll);
    return work;
  }
  Result<void> EndBacklog(Work& work) {
    if (auto ok = work.Wait(); !ok) return ok;
    Check(large_);
    return comm_->Barrier(Options(kUrgentClass))->Wait();
  }

  // The ranks begin together: the barrier has a class of its own use.
  Result<void> Sample(int traffic_class) {
    if (auto ok = comm_->Barrier(Options(kUrgentClass))->Wait(); !ok) return ok;
    const auto begin = std::chrono::steady_clock::now();
    const auto work = AllReduce(small_, traffic_class);
    if (auto ok = work->Wait(); !ok) return ok;
    row_.times_ns.push_back(static_cast<uint64_t>((std::chrono::steady_clock::now() - begin).count()));
    Check(small_);
    return {};
  }

  void Check(const std::vector<float>& sums) {
    const auto n = static_cast<uint64_t>(spec_.world_size);
    for (uint64_t i = 0; i < sums.size(); ++i) row_.wrong += sums[i] != static_cast<float>(n * (i % 509) + n * (n - 1) / 2);
    row_.checked += sums.size();
  }

  CallOptions Options(int traffic_class) const {
    CallOptions options;
    options.traffic_class = traffic_class;
    options.timeout = std::chrono::seconds(spec_.timeout_s);
    options.keeps_small = spec_.keeps_small;
    return options;
  }

  const Spec& spec_;
  const int rank_;
  std::unique_ptr<Communicator> comm_;
  std::vector<float> large_, small_;
  RankRow row_;
};

Result<std::vector<RankRow>> Run(const Spec& spec, int rank) {
  auto comm = Communicator::Join(JoinOptionsOf(spec, rank));
  if (!comm) return tl::make_unexpected(comm.error());
  return UrgentRank(spec, rank, std::move(*comm)).Run();
}

}  // namespace
}  // namespace mlnet::perf

int main(int argc, char** argv) { return mlnet::perf::RankMain(argc, argv, "mlnet-lab urgent", mlnet::perf::Run); }
