// SPDX-License-Identifier: Apache-2.0
// The key of one epoch of a job in ml_keys, for programs that check and make its tags; taken out when destroyed.
#pragma once

#include <utility>

#include "datapath/program.h"
#include "mlnet/mac.h"

namespace mlnet::datapath {

class KeyEntry {
 public:
  KeyEntry() = default;  // none
  static Result<KeyEntry> Put(const Program& program, uint32_t id, const mlnet_key& key);
  KeyEntry(KeyEntry&& other) noexcept : map_(std::exchange(other.map_, -1)), id_(other.id_) {}
  KeyEntry& operator=(KeyEntry&& other) noexcept;
  ~KeyEntry() { Remove(); }

 private:
  KeyEntry(int map, uint32_t id) : map_(map), id_(id) {}
  void Remove();

  int map_ = -1;  // not owned
  uint32_t id_ = 0;
};

}  // namespace mlnet::datapath
