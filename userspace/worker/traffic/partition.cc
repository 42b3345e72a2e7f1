// SPDX-License-Identifier: Apache-2.0
#include "traffic/partition.h"

#include <algorithm>
#include <numeric>

#include "mlnet/wire.h"

namespace mlnet::worker {
namespace {

// A tree that gets less than this costs more in headers, probes and round trips than it saves.
constexpr size_t kPartUnitsMin = 8;

size_t UnitBytes(const CollectiveSpec& spec) { return IsReduction(spec.kind) ? SizeOf(spec.dtype) : 1; }

const std::byte* Advance(const void* at, size_t bytes) {
  return at == nullptr ? nullptr : static_cast<const std::byte*>(at) + bytes;
}

// Elements (reductions) or bytes first..end-1 of the call, as a call of its own.
CollectiveSpec Range(const CollectiveSpec& whole, size_t first, size_t end) {
  CollectiveSpec part = whole;
  const size_t unit = UnitBytes(whole);
  part.in = Advance(whole.in, first * unit);
  part.count = end - first;
  part.element_base = whole.element_base + first;
  if (whole.residual != nullptr) part.residual = whole.residual + first;
  if (IsGather(whole.kind)) {  // the same range of each rank's bytes
    part.out = const_cast<std::byte*>(Advance(whole.out, first));
    part.gather_stride = whole.gather_stride != 0 ? whole.gather_stride : whole.count;
    return part;
  }
  const size_t keep_end = whole.keep_first + std::min(whole.keep_count, whole.count - std::min(whole.count, whole.keep_first));
  const size_t keep_from = std::clamp(whole.keep_first, first, end), keep_to = std::clamp(keep_end, first, end);
  part.keep_first = keep_from - first;
  part.keep_count = keep_to > keep_from ? keep_to - keep_from : 0;
  if (part.keep_count > 0) part.out = const_cast<std::byte*>(Advance(whole.out, (keep_from - whole.keep_first) * unit));
  return part;
}

}  // namespace

std::vector<Part> Partition(const CollectiveSpec& spec, std::span<const uint32_t> weights, uint32_t blocks,
                            uint64_t ordinal) {
  const uint64_t total_weight = std::accumulate(weights.begin(), weights.end(), uint64_t{0});
  // As many elements as the narrowest lanes put into a packet: a multiple of what the others do.
  const size_t unit = size_t{blocks} * MLNET_BLOCK_BYTES;
  const size_t units = spec.count / unit;
  if (weights.size() == 1 || spec.is_in_rank_order || units < kPartUnitsMin * weights.size()) {
    return {{ordinal % weights.size(), spec}};
  }
  std::vector<Part> parts;
  uint64_t weight = 0;
  size_t first = 0;
  for (size_t tree = 0; tree < weights.size(); ++tree) {
    weight += weights[tree];
    const bool is_last = weight == total_weight;
    const size_t end = is_last ? spec.count : units * weight / total_weight * unit;
    if (end > first) parts.push_back({tree, Range(spec, first, end)});
    first = end;
  }
  return parts;
}

}  // namespace mlnet::worker
