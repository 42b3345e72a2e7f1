// SPDX-License-Identifier: Apache-2.0
// Stage 0 of the tensor path: a call becomes a CollectiveSpec, or an error that names the argument.
#pragma once

#include "collective_spec.h"

namespace mlnet::worker {

/// Who calls: this rank of a job of so many; the server is rank world_size.
struct Caller {
  int rank = 0;
  int world_size = 1;
  bool widens_lanes = false;
};

/// `count` elements of the whole input; `root` of kReduce. The spec's wire type may be wider than the one asked
/// for, see JoinOptions::widens_lanes.
Result<CollectiveSpec> ReductionSpec(CollectiveKind kind, Caller caller, const void* in, void* out, size_t count,
                                     DataType dtype, ReduceOp op, int root, const CallOptions& options);
Result<CollectiveSpec> BroadcastSpec(Caller caller, void* buffer, size_t bytes, int root, const CallOptions& options);
/// `bytes` of each rank.
Result<CollectiveSpec> AllGatherSpec(Caller caller, const void* in, void* out, size_t bytes, const CallOptions& options);
Result<CollectiveSpec> GatherSpec(Caller caller, const void* in, void* out, size_t bytes, int root,
                                  const CallOptions& options);
Result<CollectiveSpec> ScatterSpec(Caller caller, const void* in, void* out, size_t bytes, int root,
                                   const CallOptions& options);
/// Of a rank (`out` null) or of the server (`in` null).
Result<CollectiveSpec> PushSpec(Caller caller, const void* in, void* out, size_t count, DataType dtype, const CallOptions& options);
Result<CollectiveSpec> PullSpec(Caller caller, const void* in, void* out, size_t bytes, const CallOptions& options);
Result<CollectiveSpec> BarrierSpec(const CallOptions& options);

}  // namespace mlnet::worker
