// SPDX-License-Identifier: Apache-2.0
#include "datapath/key_entry.h"

#include <bpf/bpf.h>

#include "datapath/inner_map.h"

namespace mlnet::datapath {

Result<KeyEntry> KeyEntry::Put(const Program& program, uint32_t id, const mlnet_key& key) {
  const int map = program.MapFd("ml_keys");
  if (auto ok = UpdateMap(map, "ml_keys", id, &key); !ok) return tl::make_unexpected(ok.error());
  return KeyEntry(map, id);
}

KeyEntry& KeyEntry::operator=(KeyEntry&& other) noexcept {
  if (this == &other) return *this;
  Remove();
  map_ = std::exchange(other.map_, -1);
  id_ = other.id_;
  return *this;
}

void KeyEntry::Remove() {
  if (map_ >= 0) bpf_map_delete_elem(map_, &id_);
  map_ = -1;
}

}  // namespace mlnet::datapath
