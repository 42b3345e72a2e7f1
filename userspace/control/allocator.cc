// SPDX-License-Identifier: Apache-2.0
#include "control/allocator.h"

#include <algorithm>
#include <iterator>

namespace mlnet::control {

std::optional<uint32_t> IdPool::Take() {
  if (!returned_.empty()) return returned_.extract(returned_.begin()).value();
  if (next_ == end_) return std::nullopt;
  return next_++;
}

bool IdPool::TakeThis(uint32_t id) {
  if (returned_.erase(id) != 0) return true;
  if (id < next_ || id >= end_) return false;
  while (next_ < id) returned_.insert(next_++);
  ++next_;
  return true;
}

void IdPool::Give(uint32_t id) { returned_.insert(id); }

RangePool::RangePool(uint32_t size) {
  if (size > 0) free_[0] = size;
}

std::optional<uint32_t> RangePool::Take(uint32_t count) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [first, free] = *it;
    if (free < count) continue;
    free_.erase(it);
    if (free > count) free_[first + count] = free - count;
    return first;
  }
  return std::nullopt;
}

bool RangePool::TakeThis(uint32_t first, uint32_t count) {
  if (count == 0) return true;
  const auto next = free_.upper_bound(first);
  if (next == free_.begin()) return false;
  const auto it = std::prev(next);
  const auto [free_first, free] = *it;
  if (uint64_t{first} + count > uint64_t{free_first} + free) return false;
  free_.erase(it);
  if (first > free_first) free_[free_first] = first - free_first;
  if (first + count < free_first + free) free_[first + count] = free_first + free - first - count;
  return true;
}

void RangePool::Give(uint32_t first, uint32_t count) {
  if (count == 0) return;
  auto next = free_.lower_bound(first);
  if (next != free_.end() && first + count == next->first) {
    count += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == first) {
      before->second += count;
      return;
    }
  }
  free_[first] = count;
}

uint32_t RangePool::LongestFree() const {
  uint32_t longest = 0;
  for (const auto& [first, count] : free_) longest = std::max(longest, count);
  return longest;
}

}  // namespace mlnet::control
