// SPDX-License-Identifier: Apache-2.0
// mlnet-perf-mpi SPEC: one rank over Open MPI's MPI_Allreduce, started by mpirun.
#include <fmt/format.h>
#include <mpi.h>

#include <climits>

#include "mlnet-perf/measure.h"

namespace mlnet::perf {
namespace {

class MpiBackend final : public Backend {
 public:
  MpiBackend(const Spec& spec, int rank) : spec_(spec), rank_(rank) {}

  Promise promise() const override { return Promise::kFloatAdds; }

  Result<void> Prepare(void* buffer, size_t count, DataType dtype) override {
    if (count > INT_MAX) return Err(ErrorCode::kUnsupported, "MPI counts elements in an int");
    buffer_ = buffer;
    count_ = static_cast<int>(count);
    type_ = dtype == DataType::kFloat32 ? MPI_FLOAT : MPI_INT32_T;
    return {};
  }

  Result<void> AllReduce(size_t) override {
    // An error aborts the job: MPI_ERRORS_ARE_FATAL is the default of MPI_COMM_WORLD.
    MPI_Allreduce(MPI_IN_PLACE, buffer_, count_, type_, MPI_SUM, MPI_COMM_WORLD);
    return {};
  }

  Counters ReadCounters() override { return {0, 0, TcpRetransmits(spec_, rank_)}; }

 private:
  const Spec& spec_;
  const int rank_;
  void* buffer_ = nullptr;
  int count_ = 0;
  MPI_Datatype type_ = MPI_FLOAT;
};

int Main(const Spec& spec) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != spec.world_size) {
    return FailRank(spec, rank, {ErrorCode::kMismatch, fmt::format("mpirun started {} ranks", size), ""});
  }
  MpiBackend backend(spec, rank);
  return RunRank(spec, rank, backend);
}

}  // namespace
}  // namespace mlnet::perf

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 2) {
    fmt::print(stderr, "usage: mlnet-perf-mpi SPEC; started by mlnet-lab perf\n");
    return 2;
  }
  const auto spec = mlnet::perf::LoadSpec(argv[1]);
  if (!spec) fmt::print(stderr, "mlnet-perf-mpi: {}\n", spec.error().ToString());
  const int code = spec ? mlnet::perf::Main(*spec) : 1;
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);  // the others may wait for this rank in a barrier
  MPI_Finalize();
  return 0;
}
