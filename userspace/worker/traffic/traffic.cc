// SPDX-License-Identifier: Apache-2.0
#include "traffic/traffic.h"

#include <algorithm>
#include <cstring>

#include "traffic/byte_traffic.h"
#include "traffic/float_traffic.h"
#include "traffic/lane_traffic.h"

namespace mlnet::worker {

Window::Window(const CollectiveSpec& spec, size_t unit_bytes, size_t count)
    : out_(static_cast<std::byte*>(spec.out)),
      first_(std::min(spec.keep_first, count)),
      end_(first_ + std::min(spec.keep_count, count - first_)),
      unit_bytes_(unit_bytes) {}

std::byte* Window::Place(size_t first, size_t count) const {
  if (first < first_ || first + count > end_) return nullptr;
  return out_ + (first - first_) * unit_bytes_;
}

void Window::Write(size_t first, size_t count, const void* units) const {
  const size_t from = std::max(first, first_), to = std::min(first + count, end_);
  if (from >= to) return;
  std::memcpy(out_ + (from - first_) * unit_bytes_,
              static_cast<const std::byte*>(units) + (from - first) * unit_bytes_, (to - from) * unit_bytes_);
}

bool IsSmallSum(const CollectiveSpec& spec, int world_size, size_t small_bytes) {
  return IsReduction(spec.kind) && IsFloat(spec.dtype) && spec.op == ReduceOp::kSum && spec.count > 0 &&
         spec.wire == WireType::kInt32 && spec.keeps_small && !spec.is_part &&
         spec.count * SizeOf(spec.dtype) * static_cast<size_t>(world_size) <= small_bytes;
}

std::unique_ptr<Traffic> MakeTraffic(const CollectiveSpec& spec, const JobShape& job, Counters& counters) {
  if (!IsReduction(spec.kind) || spec.count == 0) return std::make_unique<ByteTraffic>(spec, job);
  if (!IsFloat(spec.dtype) || spec.op != ReduceOp::kSum) return std::make_unique<LaneTraffic>(spec, job);
  if (spec.is_in_rank_order) return std::make_unique<RankOrderTraffic>(spec, job);
  return std::make_unique<FloatTraffic>(spec, job, counters);
}

}  // namespace mlnet::worker
