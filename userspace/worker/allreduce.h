// SPDX-License-Identifier: Apache-2.0
// Stage 0 of the tensor path: a call becomes a CollectiveSpec, or an error that names the argument.
#pragma once

#include "mlnet/communicator.h"
#include "partition.h"

namespace mlnet::worker {

Result<CollectiveSpec> AllReduceSpec(const void* in, void* out, size_t count, DataType dtype, ReduceOp op,
                                     const CallOptions& options);
Result<CollectiveSpec> BroadcastSpec(void* buffer, size_t bytes, int root, int world_size,
                                     const CallOptions& options);
Result<CollectiveSpec> AllGatherSpec(const void* in, void* out, size_t bytes, int rank, int world_size,
                                     const CallOptions& options);
Result<CollectiveSpec> BarrierSpec(const CallOptions& options);

}  // namespace mlnet::worker
