// SPDX-License-Identifier: Apache-2.0
#include "calls.h"

#include <algorithm>
#include <iterator>

#include "mlnet/limits.h"
#include "mlnet/wire.h"
#include "traffic/lane_traffic.h"

namespace mlnet {

size_t SizeOf(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat64:
    case DataType::kInt64:
      return 8;
    case DataType::kFloat32:
    case DataType::kInt32:
      return 4;
    case DataType::kFloat16:
    case DataType::kBFloat16:
    case DataType::kInt16:
      return 2;
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kBool:
      return 1;
  }
  return 0;
}

const char* NameOf(DataType dtype) {
  constexpr const char* kNames[] = {"float32", "int32", "float64", "float16", "bfloat16",
                                    "int8",    "uint8", "int16",   "int64",   "bool"};
  const auto index = static_cast<size_t>(dtype);
  return index < std::size(kNames) ? kNames[index] : "?";
}

const char* NameOf(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "min", "max", "bitand", "bitor", "bitxor"};
  const auto index = static_cast<size_t>(op);
  return index < std::size(kNames) ? kNames[index] : "?";
}

const char* NameOf(WireType wire) {
  constexpr const char* kNames[] = {"int32", "int16", "int8"};
  const auto index = static_cast<size_t>(wire);
  return index < std::size(kNames) ? kNames[index] : "?";
}

namespace worker {
namespace {

bool Overlaps(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

tl::unexpected<Error> Invalid(std::string message) { return Err(ErrorCode::kInvalidArgument, std::move(message)); }

Result<void> CheckRoot(Caller caller, int root) {
  if (root >= 0 && root < caller.world_size) return {};
  return Invalid("root " + std::to_string(root) + " is not a rank of a job of " + std::to_string(caller.world_size));
}

Result<CollectiveSpec> Spec(CollectiveKind kind, const void* in, void* out, size_t count, const CallOptions& options) {
  if (options.traffic_class < 0 || options.traffic_class >= MLNET_CLASSES_MAX) {
    return Invalid("traffic class " + std::to_string(options.traffic_class) + " is not within 0..7");
  }
  CollectiveSpec spec;
  spec.kind = kind;
  spec.in = in;
  spec.out = out;
  spec.count = count;
  spec.traffic_class = options.traffic_class;
  spec.is_part = options.is_part;
  spec.on_done = options.on_done;
  spec.timeout_ns =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(options.timeout).count());
  return spec;
}

// Both buffers as far as this rank needs them.
Result<CollectiveSpec> Checked(CollectiveSpec spec, size_t in_bytes, size_t out_bytes, bool may_share) {
  if ((in_bytes > 0 && spec.in == nullptr) || (out_bytes > 0 && spec.out == nullptr)) {
    return Invalid("a buffer is null though there are elements");
  }
  if (!may_share && Overlaps(spec.in, in_bytes, spec.out, out_bytes)) {
    return Invalid("input and output overlap otherwise than element by element");
  }
  return spec;
}

Result<void> CheckReduction(DataType dtype, ReduceOp op) {
  const std::string what = std::string(NameOf(op)) + " of " + NameOf(dtype);
  if (SizeOf(dtype) == 0 || op > ReduceOp::kBitXor) {
    return Err(ErrorCode::kUnsupported, what + " is unknown to mlnet");
  }
  const bool is_float_sum = IsFloat(dtype) && op == ReduceOp::kSum;
  if (is_float_sum || LaneCodingOf(dtype, op).encode != nullptr) return {};
  return Err(ErrorCode::kUnsupported, what + " is not supported by mlnet",
             "floats have sum, min and max; integers and bool also bitand, bitor and bitxor");
}

int RanksMaxOf(WireType wire) {
  return wire == WireType::kInt8 ? kInt8RanksMax : wire == WireType::kInt16 ? kInt16RanksMax : kRanksMax;
}

/// The narrowest wire type with enough levels that is not narrower than `wire`.
WireType Widened(Caller caller, WireType wire) {
  if (wire == WireType::kInt8 && caller.world_size > kInt8RanksMax) wire = WireType::kInt16;
  if (wire == WireType::kInt16 && caller.world_size > kInt16RanksMax) wire = WireType::kInt32;
  return wire;
}

Result<void> CheckWire(Caller caller, DataType dtype, ReduceOp op, const CallOptions& options) {
  if (options.residual != nullptr && (dtype != DataType::kFloat32 || op != ReduceOp::kSum)) {
    return Err(ErrorCode::kUnsupported, std::string("a residual belongs to sums of float32, not to ") + NameOf(op) +
                                            " of " + NameOf(dtype));
  }
  if (options.wire == WireType::kInt32) return {};
  const std::string wire = NameOf(options.wire);
  if (!IsFloat(dtype) || dtype == DataType::kFloat64 || op != ReduceOp::kSum) {
    return Err(ErrorCode::kUnsupported, "wire type " + wire + " is for sums of float32, float16 and bfloat16, not for " +
                                            NameOf(op) + " of " + NameOf(dtype));
  }
  const WireType wider = Widened(caller, options.wire);
  if (wider == options.wire || caller.widens_lanes) return {};
  return Err(ErrorCode::kUnsupported,
             "wire type " + wire + " leaves too few levels with " + std::to_string(caller.world_size) +
                 " ranks (more than " + std::to_string(RanksMaxOf(options.wire)) + ")",
             std::string("use ") + NameOf(wider) + ", or join with widens_lanes");
}

}  // namespace

Result<CollectiveSpec> ReductionSpec(CollectiveKind kind, Caller caller, const void* in, void* out, size_t count,
                                     DataType dtype, ReduceOp op, int root, const CallOptions& options) {
  if (auto ok = CheckReduction(dtype, op); !ok) return tl::make_unexpected(ok.error());
  if (auto ok = CheckWire(caller, dtype, op, options); !ok) return tl::make_unexpected(ok.error());
  auto spec = Spec(kind, in, out, count, options);
  if (!spec) return spec;
  spec->dtype = dtype;
  spec->op = op;
  spec->wire = Widened(caller, options.wire);
  spec->keeps_small = options.keeps_small;
  spec->is_stochastic = options.is_stochastic;
  spec->residual = options.residual;
  if (kind == CollectiveKind::kReduce) {
    if (auto ok = CheckRoot(caller, root); !ok) return tl::make_unexpected(ok.error());
    spec->root = root;
    if (caller.rank != root) spec->keep_count = 0;
  }
  if (kind == CollectiveKind::kReduceScatter) {
    spec->keep_count = count / static_cast<size_t>(caller.world_size);
    spec->keep_first = spec->keep_count * static_cast<size_t>(caller.rank);
  }
  const size_t bytes = count * SizeOf(dtype), kept = std::min(spec->keep_count, count) * SizeOf(dtype);
  const auto* own = static_cast<const std::byte*>(in) + (in == nullptr ? 0 : spec->keep_first * SizeOf(dtype));
  return Checked(*spec, bytes, kept, out == own);
}

Result<CollectiveSpec> BroadcastSpec(Caller caller, void* buffer, size_t bytes, int root, const CallOptions& options) {
  if (auto ok = CheckRoot(caller, root); !ok) return tl::make_unexpected(ok.error());
  auto spec = Spec(CollectiveKind::kBroadcast, buffer, buffer, bytes, options);
  if (!spec) return spec;
  spec->root = root;
  return Checked(*spec, bytes, bytes, true);
}

Result<CollectiveSpec> AllGatherSpec(Caller caller, const void* in, void* out, size_t bytes,
                                     const CallOptions& options) {
  auto spec = Spec(CollectiveKind::kAllGather, in, out, bytes, options);
  if (!spec) return spec;
  const auto* own = static_cast<const std::byte*>(out) +
                    (out == nullptr ? 0 : static_cast<size_t>(caller.rank) * bytes);
  return Checked(*spec, bytes, bytes * static_cast<size_t>(caller.world_size), in == own);
}

Result<CollectiveSpec> GatherSpec(Caller caller, const void* in, void* out, size_t bytes, int root,
                                  const CallOptions& options) {
  if (auto ok = CheckRoot(caller, root); !ok) return tl::make_unexpected(ok.error());
  auto spec = AllGatherSpec(caller, in, caller.rank == root ? out : nullptr, caller.rank == root ? bytes : 0, options);
  if (!spec) return spec;
  spec->kind = CollectiveKind::kGather;
  spec->count = bytes;
  spec->root = root;
  if (caller.rank == root) return spec;
  spec->keep_count = 0;
  return Checked(*spec, bytes, 0, true);
}

Result<CollectiveSpec> ScatterSpec(Caller caller, const void* in, void* out, size_t bytes, int root,
                                   const CallOptions& options) {
  if (auto ok = CheckRoot(caller, root); !ok) return tl::make_unexpected(ok.error());
  const size_t total = bytes * static_cast<size_t>(caller.world_size);
  auto spec = Spec(CollectiveKind::kScatter, in, out, total, options);
  if (!spec) return spec;
  spec->root = root;
  spec->keep_count = bytes;
  spec->keep_first = bytes * static_cast<size_t>(caller.rank);
  const auto* own = static_cast<const std::byte*>(in) + (in == nullptr ? 0 : spec->keep_first);
  return Checked(*spec, caller.rank == root ? total : 0, bytes, out == own);
}

Result<CollectiveSpec> PushSpec(Caller caller, const void* in, void* out, size_t count, DataType dtype,
                                const CallOptions& options) {
  if (auto ok = CheckReduction(dtype, ReduceOp::kSum); !ok) return tl::make_unexpected(ok.error());
  if (auto ok = CheckWire(caller, dtype, ReduceOp::kSum, options); !ok) return tl::make_unexpected(ok.error());
  auto spec = Spec(CollectiveKind::kPush, in, out, count, options);
  if (!spec) return spec;
  const bool is_server = caller.rank == caller.world_size;
  spec->dtype = dtype;
  spec->wire = Widened(caller, options.wire);
  spec->keeps_small = options.keeps_small;
  spec->is_stochastic = options.is_stochastic;
  spec->residual = options.residual;
  if (!is_server) spec->keep_count = 0;
  const size_t bytes = count * SizeOf(dtype);
  return Checked(*spec, is_server ? 0 : bytes, is_server ? bytes : 0, true);
}

Result<CollectiveSpec> PullSpec(Caller caller, const void* in, void* out, size_t bytes, const CallOptions& options) {
  auto spec = Spec(CollectiveKind::kPull, in, out, bytes, options);
  if (!spec) return spec;
  const bool is_server = caller.rank == caller.world_size;
  spec->root = caller.world_size;
  if (is_server) spec->keep_count = 0;
  return Checked(*spec, is_server ? bytes : 0, is_server ? 0 : bytes, true);
}

Result<CollectiveSpec> BarrierSpec(const CallOptions& options) {
  return Spec(CollectiveKind::kBarrier, nullptr, nullptr, 0, options);
}

}  // namespace worker
}  // namespace mlnet
