// SPDX-License-Identifier: Apache-2.0
// One call, as the caller made it, checked (calls.h makes it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

#include "mlnet/communicator.h"

namespace mlnet::worker {

enum class CollectiveKind : uint8_t {
  kAllReduce = 0,
  kBroadcast = 1,
  kAllGather = 2,
  kBarrier = 3,
  kReduce = 4,
  kReduceScatter = 5,
  kGather = 6,
  kScatter = 7,
  kPush = 8,  // the sum goes to the job's server
  kPull = 9,  // bytes come from it; `root` is world_size, which is no rank
};

struct CollectiveSpec {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DataType dtype = DataType::kFloat32;  // reductions only, as the next two
  ReduceOp op = ReduceOp::kSum;
  WireType wire = WireType::kInt32;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;  // of the whole input: elements (reductions) or bytes (the others)
  /// Which elements or bytes of the whole result this rank wants; the first of them lies at `out`.
  size_t keep_first = 0;
  size_t keep_count = std::numeric_limits<size_t>::max();
  int root = 0;  // of those that have one
  bool keeps_small = true;
  bool is_stochastic = false;
  bool is_part = false;  // of a larger tensor, in the caller's eyes
  float* residual = nullptr;
  int traffic_class = 0;
  uint64_t timeout_ns = 0;  // 0: the job's
  std::function<void(const Result<void>&)> on_done{};
  /// Small float sums: gathered as they are, and added by each rank (the engine decides).
  bool is_in_rank_order = false;
  // Of a part of a call (traffic/partition.h).
  size_t element_base = 0;   // where the part begins in the caller's tensor
  size_t gather_stride = 0;  // bytes between the ranks' pieces in the result; 0: `count`
};

inline bool IsReduction(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kPush;
}
/// Answered by the job's server instead of reflected.
inline bool IsServed(CollectiveKind kind) { return kind == CollectiveKind::kPush || kind == CollectiveKind::kPull; }
inline bool IsGather(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kGather;
}
inline bool HasRoot(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter;
}
inline bool IsFloat(DataType dtype) {
  return dtype == DataType::kFloat32 || dtype == DataType::kFloat64 || dtype == DataType::kFloat16 ||
         dtype == DataType::kBFloat16;
}

}  // namespace mlnet::worker
