// SPDX-License-Identifier: Apache-2.0
// mlnet-perf-rank SPEC RANK: one rank over libmlnet.
#include <fmt/format.h>

#include <cstdlib>

#include "mlnet-perf/measure.h"

namespace mlnet::perf {
namespace {

class MlnetBackend final : public Backend {
 public:
  MlnetBackend(const Spec& spec, std::unique_ptr<Communicator> comm) : spec_(spec), comm_(std::move(comm)) {}

  Promise promise() const override { return spec_.keeps_small ? Promise::kElement : Promise::kBlock; }

  Result<void> Prepare(void* buffer, size_t count, DataType dtype) override {
    buffer_ = buffer;
    count_ = count;
    dtype_ = dtype;
    return {};
  }

  Result<void> AllReduce(size_t) override {
    return comm_->AllReduce(buffer_, buffer_, count_, dtype_, spec_.op, Options())->Wait();
  }

  Counters ReadCounters() override {
    const CommStats stats = comm_->Stats();
    return {stats.summed_in_kernel, stats.summed_in_user_space, stats.retransmits};
  }

 private:
  CallOptions Options() const {
    CallOptions options;
    options.timeout = std::chrono::seconds(spec_.timeout_s);
    options.wire = spec_.wire;
    options.keeps_small = spec_.keeps_small;
    return options;
  }

  const Spec& spec_;
  std::unique_ptr<Communicator> comm_;
  void* buffer_ = nullptr;
  size_t count_ = 0;
  DataType dtype_ = DataType::kFloat32;
};

int Main(const Spec& spec, int rank) {
  JoinOptions options;
  options.small_bytes = 0;  // what is measured is the sum in the kernel, at every size
  options.job = spec.job;
  options.rank = rank;
  options.world_size = spec.world_size;
  auto comm = Communicator::Join(options);
  if (!comm) return FailRank(spec, rank, comm.error());
  MlnetBackend backend(spec, std::move(*comm));
  return RunRank(spec, rank, backend);
}

}  // namespace
}  // namespace mlnet::perf

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: mlnet-perf-rank SPEC RANK; started by mlnet-lab perf\n");
    return 2;
  }
  const auto spec = mlnet::perf::LoadSpec(argv[1]);
  if (!spec) {
    fmt::print(stderr, "mlnet-perf-rank: {}\n", spec.error().ToString());
    return 1;
  }
  return mlnet::perf::Main(*spec, std::atoi(argv[2]));
}
