// SPDX-License-Identifier: Apache-2.0
// mlnet-perf-rank SPEC RANK: one rank over libmlnet.
#include <fmt/format.h>


#include "mlnet-perf/measure.h"

namespace mlnet::perf {
namespace {

class MlnetBackend final : public Backend {
 public:
  MlnetBackend(const Spec& spec, std::unique_ptr<Communicator> comm) : spec_(spec), comm_(std::move(comm)) {}

  Promise promise() const override { return spec_.keeps_small ? Promise::kElement : Promise::kBlock; }

  size_t block_bytes() const override { return comm_->block_bytes(); }

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

Result<std::vector<RankRow>> Run(const Spec& spec, int rank) {
  JoinOptions options = JoinOptionsOf(spec, rank);
  options.small_bytes = spec.small_bytes;
  auto comm = Communicator::Join(options);
  if (!comm) return tl::make_unexpected(comm.error());
  MlnetBackend backend(spec, std::move(*comm));
  return Measure(spec, rank, backend);
}

}  // namespace
}  // namespace mlnet::perf

int main(int argc, char** argv) { return mlnet::perf::RankMain(argc, argv, "mlnet-lab perf", mlnet::perf::Run); }
