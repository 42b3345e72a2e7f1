// SPDX-License-Identifier: Apache-2.0
// mlnet-perf-mpi SPEC: one rank over Open MPI's MPI_Allreduce, started by mpirun, with whichever of its algorithms is
// fastest for the size. A communicator keeps the algorithm that was set when it was made, so there is one for each.
#include <fmt/format.h>
#include <mpi.h>

#include <climits>

#include "mlnet-perf/element_type.h"
#include "mlnet-perf/measure.h"

namespace mlnet::perf {
namespace {

Result<MPI_Datatype> TypeFor(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32:
      return MPI_FLOAT;
    case DataType::kFloat64:
      return MPI_DOUBLE;
    case DataType::kInt8:
      return MPI_INT8_T;
    case DataType::kUint8:
      return MPI_UINT8_T;
    case DataType::kInt16:
      return MPI_INT16_T;
    case DataType::kInt32:
      return MPI_INT32_T;
    case DataType::kInt64:
      return MPI_INT64_T;
    default:
      return Err(ErrorCode::kUnsupported, std::string("MPI cannot reduce ") + TypeOf(dtype).name);
  }
}

/// Its numbers in coll_tuned_allreduce_algorithm (ompi_info --param coll tuned --level 9). "own": as Open MPI decides.
struct Algorithm {
  const char* name;
  int number;
};
constexpr Algorithm kAlgorithms[] = {{"own", 0}, {"recursive doubling", 3}, {"ring", 4}, {"segmented ring", 5}, {"rabenseifner", 6}};

/// False where this MPI has no such setting, or does not let it be set.
bool SetAlgorithm(int number) {
  int provided = 0, index = 0, count = 0;
  MPI_T_cvar_handle handle;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return false;
  const bool is_set = MPI_T_cvar_get_index("coll_tuned_allreduce_algorithm", &index) == MPI_SUCCESS &&
                      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) == MPI_SUCCESS &&
                      MPI_T_cvar_write(handle, &number) == MPI_SUCCESS;
  MPI_T_finalize();
  return is_set;
}

class MpiBackend final : public Backend {
 public:
  MpiBackend(const Spec& spec, int rank) : spec_(spec), rank_(rank) {
    for (const Algorithm& algorithm : kAlgorithms) {
      if (!SetAlgorithm(algorithm.number)) continue;
      MPI_Comm_dup(MPI_COMM_WORLD, &communicators_.emplace_back());
      names_.emplace_back(algorithm.name);
    }
  }

  bool HasVariants() const { return !names_.empty(); }
  std::vector<std::string> Variants() const override { return names_; }

  Promise promise() const override { return Promise::kAdds; }

  Result<void> Prepare(void* buffer, size_t count, DataType dtype) override {
    if (count > INT_MAX) return Err(ErrorCode::kUnsupported, "MPI counts elements in an int");
    buffer_ = buffer;
    count_ = static_cast<int>(count);
    const auto type = TypeFor(dtype);
    if (!type) return tl::make_unexpected(type.error());
    type_ = *type;
    op_ = spec_.op == ReduceOp::kSum ? MPI_SUM : spec_.op == ReduceOp::kMin ? MPI_MIN : MPI_MAX;
    return {};
  }

  Result<void> AllReduce(size_t variant) override {
    // An error aborts the job: MPI_ERRORS_ARE_FATAL is the default of MPI_COMM_WORLD and what is made of it.
    MPI_Allreduce(MPI_IN_PLACE, buffer_, count_, type_, op_, communicators_[variant]);
    return {};
  }

  Counters ReadCounters() override { return {0, 0, TcpRetransmits(spec_, rank_)}; }

 private:
  const Spec& spec_;
  const int rank_;
  std::vector<MPI_Comm> communicators_;  // by variant
  std::vector<std::string> names_;
  void* buffer_ = nullptr;
  int count_ = 0;
  MPI_Datatype type_ = MPI_FLOAT;
  MPI_Op op_ = MPI_SUM;
};

int Main(const Spec& spec) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != spec.world_size) {
    return LeaveRows(spec, rank, Err(ErrorCode::kMismatch, fmt::format("mpirun started {} ranks", size)));
  }
  MpiBackend backend(spec, rank);
  if (!backend.HasVariants())
    return LeaveRows(spec, rank, Err(ErrorCode::kUnsupported, "this MPI does not let its algorithm be set", "Open MPI 4 does"));
  return LeaveRows(spec, rank, Measure(spec, rank, backend));
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
