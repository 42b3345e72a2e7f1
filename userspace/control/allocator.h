// SPDX-License-Identifier: Apache-2.0
// Which ids and index ranges of the shared maps are given to which job. Pure bookkeeping: the same
// order of calls gives the same ids, and what is given back is given again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace mlnet::control {

/// Ids first..first+count-1, lowest free one first.
class IdPool {
 public:
  IdPool(uint32_t first, uint32_t count) : next_(first), end_(first + count) {}
  std::optional<uint32_t> Take();
  /// This one, if it is free.
  bool TakeThis(uint32_t id);
  void Give(uint32_t id);

 private:
  uint32_t next_;  // ids from here on were never taken
  uint32_t end_;
  std::set<uint32_t> returned_;
};

/// Ranges of indices 0..size-1, first fit; neighbours are merged when given back.
class RangePool {
 public:
  explicit RangePool(uint32_t size);
  std::optional<uint32_t> Take(uint32_t count);
  /// These, if all of them are free.
  bool TakeThis(uint32_t first, uint32_t count);
  void Give(uint32_t first, uint32_t count);
  uint32_t LongestFree() const;

 private:
  std::map<uint32_t, uint32_t> free_;  // first -> count
};

}  // namespace mlnet::control
