// SPDX-License-Identifier: Apache-2.0
// mlnet-perf-job SPEC RANK: one rank of one job of many that run at once. It joins, says so, waits for the gate that
// opens for all jobs together, transfers, checks every element, and leaves how far it was when.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "mlnet-perf/inputs.h"
#include "mlnet-perf/job_files.h"
#include "mlnet-perf/measure.h"

namespace mlnet::perf {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGatePoll{5};
constexpr milliseconds kSamplePeriod{50};

class JobRank {
 public:
  JobRank(const Spec& spec, int rank, std::unique_ptr<Communicator> comm)
      : spec_(spec), rank_(rank), comm_(std::move(comm)), count_(spec.counts.front()), calls_(static_cast<uint64_t>(spec.iterations)) {
    in_.resize(count_ + calls_);
    for (uint64_t i = 0; i < in_.size(); ++i) in_[i] = WholeInput(spec_.seed, rank_, i);
    out_.resize(count_ * calls_);
  }

  Result<std::vector<RankRow>> Run() {
    std::ofstream(ReadyFile(spec_, rank_)).put('\n');
    while (::access(GateFile(spec_).c_str(), F_OK) != 0) std::this_thread::sleep_for(kGatePoll);
    const uint64_t start_ns = NowNs();
    for (uint64_t call = 0; call < calls_; ++call) {
      if (auto ok = OneCall(call); !ok) return tl::make_unexpected(ok.error());
    }
    row_.times_ns = {NowNs() - start_ns};
    row_.count = count_;
    const CommStats stats = comm_->Stats();
    row_.summed_in_kernel = stats.summed_in_kernel;
    row_.summed_in_user_space = stats.summed_in_user_space;
    row_.retransmits = stats.retransmits;
    comm_.reset();  // leaves, before the time that the check takes
    Check();
    SaveSamples();
    return std::vector<RankRow>{row_};
  }

 private:
  // Each call begins one element later: other data, at no cost while others are measured.
  Result<void> OneCall(uint64_t call) {
    CallOptions options;
    options.timeout = std::chrono::seconds(spec_.timeout_s);
    options.keeps_small = spec_.keeps_small;
    const auto work = comm_->AllReduce(&in_[call], &out_[call * count_], count_, DataType::kFloat32, ReduceOp::kSum, options);
    while (!work->IsDone()) {
      (void)work->Wait(kSamplePeriod);
      samples_.push_back({NowNs(), comm_->Stats().bytes});
    }
    return work->Wait();
  }

  void Check() {
    std::vector<float> sums(in_.size());
    for (uint64_t i = 0; i < sums.size(); ++i) {
      for (int r = 0; r < spec_.world_size; ++r) sums[i] += WholeInput(spec_.seed, r, i);
    }
    for (uint64_t call = 0; call < calls_; ++call) {
      for (uint64_t i = 0; i < count_; ++i) row_.wrong += out_[call * count_ + i] != sums[call + i];
    }
    row_.checked = out_.size();
  }

  static uint64_t NowNs() {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }

  void SaveSamples() {
    if (rank_ != 0) return;
    std::ofstream file(SamplesFile(spec_));
    for (const auto& [at_ns, bytes] : samples_) file << at_ns << ' ' << bytes << '\n';
  }

  const Spec& spec_;
  const int rank_;
  std::unique_ptr<Communicator> comm_;
  const uint64_t count_, calls_;
  std::vector<float> in_, out_;
  std::vector<std::pair<uint64_t, uint64_t>> samples_;
  RankRow row_;
};

Result<std::vector<RankRow>> Run(const Spec& spec, int rank) {
  JoinOptions options = JoinOptionsOf(spec, rank);
  options.work_bytes = spec.counts.front() * sizeof(float) * static_cast<uint64_t>(spec.iterations);
  auto comm = Communicator::Join(options);
  if (!comm) return tl::make_unexpected(comm.error());
  return JobRank(spec, rank, std::move(*comm)).Run();
}

}  // namespace
}  // namespace mlnet::perf

int main(int argc, char** argv) { return mlnet::perf::RankMain(argc, argv, "mlnet-lab jobs", mlnet::perf::Run); }
