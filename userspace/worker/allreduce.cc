// SPDX-License-Identifier: Apache-2.0
#include "allreduce.h"

#include "mlnet/wire.h"

namespace mlnet {

size_t SizeOf(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32:
      return sizeof(float);
    case DataType::kInt32:
      return sizeof(int32_t);
  }
  return 0;
}

namespace worker {
namespace {

bool Overlaps(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

Result<CollectiveSpec> Spec(CollectiveKind kind, const void* in, void* out, size_t count,
                            const CallOptions& options) {
  if (options.traffic_class < 0 || options.traffic_class >= MLNET_CLASSES_MAX) {
    return Err(ErrorCode::kInvalidArgument,
               "traffic class " + std::to_string(options.traffic_class) + " is not within 0..7");
  }
  if (count > 0 && (in == nullptr || out == nullptr)) {
    return Err(ErrorCode::kInvalidArgument, "a buffer is null though there are elements");
  }
  CollectiveSpec spec;
  spec.kind = kind;
  spec.in = in;
  spec.out = out;
  spec.count = count;
  spec.traffic_class = options.traffic_class;
  spec.timeout_ns =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(options.timeout).count());
  return spec;
}

}  // namespace

Result<CollectiveSpec> AllReduceSpec(const void* in, void* out, size_t count, DataType dtype, ReduceOp op,
                                     const CallOptions& options) {
  if (SizeOf(dtype) == 0 || op != ReduceOp::kSum) {
    return Err(ErrorCode::kUnsupported, "all_reduce takes float32 and int32, and sums them");
  }
  const size_t bytes = count * SizeOf(dtype);
  if (in != out && Overlaps(in, bytes, out, bytes)) {
    return Err(ErrorCode::kInvalidArgument, "input and output overlap without being equal");
  }
  auto spec = Spec(CollectiveKind::kAllReduce, in, out, count, options);
  if (spec) {
    spec->dtype = dtype;
    spec->op = op;
  }
  return spec;
}

Result<CollectiveSpec> BroadcastSpec(void* buffer, size_t bytes, int root, int world_size,
                                     const CallOptions& options) {
  if (root < 0 || root >= world_size) {
    return Err(ErrorCode::kInvalidArgument,
               "root " + std::to_string(root) + " is not a rank of a job of " + std::to_string(world_size));
  }
  auto spec = Spec(CollectiveKind::kBroadcast, buffer, buffer, bytes, options);
  if (spec) spec->root = root;
  return spec;
}

Result<CollectiveSpec> AllGatherSpec(const void* in, void* out, size_t bytes, int rank, int world_size,
                                     const CallOptions& options) {
  const auto own = static_cast<const std::byte*>(out) + static_cast<size_t>(rank) * bytes;
  if (in != own && Overlaps(in, bytes, out, bytes * static_cast<size_t>(world_size))) {
    return Err(ErrorCode::kInvalidArgument, "input overlaps the output elsewhere than at this rank's place");
  }
  return Spec(CollectiveKind::kAllGather, in, out, bytes, options);
}

Result<CollectiveSpec> BarrierSpec(const CallOptions& options) {
  return Spec(CollectiveKind::kBarrier, nullptr, nullptr, 0, options);
}

}  // namespace worker
}  // namespace mlnet
