// SPDX-License-Identifier: Apache-2.0
#include "datapath/leftovers.h"

#include <bpf/bpf.h>

#include <filesystem>

#include "mlnet/job.h"

namespace mlnet::datapath {
namespace {

// All but those that maps in use have.
void RemovePins(const OuterMap& outer, const std::set<uint32_t>& used) {
  std::set<std::string> kept;
  for (const uint32_t key : used) kept.insert(outer.PinOf(key));
  std::error_code ec;
  for (const auto& pin : std::filesystem::directory_iterator(outer.pins, ec)) {
    if (!kept.contains(pin.path())) std::filesystem::remove(pin.path(), ec);
  }
}

// Keys of jobs that are not here, and of earlier epochs of those that are.
size_t RemoveOtherKeys(int map, const std::set<uint32_t>& used) {
  std::set<uint32_t> ids;
  uint32_t id = 0;
  for (const uint32_t* last = nullptr; bpf_map_get_next_key(map, last, &id) == 0; last = &id) ids.insert(id);
  size_t num_removed = 0;
  for (const uint32_t other : ids) num_removed += !used.contains(other) && bpf_map_delete_elem(map, &other) == 0;
  return num_removed;
}

}  // namespace

size_t RemoveOthers(const Program& program, const KeysInUse& in_use) {
  struct Outer {
    const char* name;
    uint32_t entries;
    const std::set<uint32_t>& used;
  };
  const Outer maps[] = {{"ml_jobs", MLNET_JOBS_MAX, in_use.jobs},        {"ml_words", MLNET_WORDS_MAPS_MAX, in_use.words},
                        {"ml_inboxes", MLNET_INBOXES_MAX, in_use.inboxes}, {"ml_wakes", MLNET_INBOXES_MAX, in_use.inboxes},
                        {"ml_rings", MLNET_RINGS_MAX, in_use.rings},      {"ml_fans", MLNET_FANS_MAX, in_use.fans}};
  size_t num_removed = 0;
  for (const Outer& map : maps) {
    const OuterMap outer = program.Outer(map.name);
    for (uint32_t key = 0; key < map.entries; ++key) {
      uint32_t id = 0;
      if (map.used.contains(key) || bpf_map_lookup_elem(outer.fd, &key, &id) != 0) continue;
      num_removed += bpf_map_delete_elem(outer.fd, &key) == 0;
    }
    RemovePins(outer, map.used);
  }
  return num_removed + RemoveOtherKeys(program.MapFd("ml_keys"), in_use.keys);
}

}  // namespace mlnet::datapath
