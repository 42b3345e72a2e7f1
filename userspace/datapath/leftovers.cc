// SPDX-License-Identifier: Apache-2.0
#include "datapath/leftovers.h"

#include <bpf/bpf.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <string>

namespace mlnet::datapath {
namespace {

std::set<uint32_t> FilledKeys(int map) {
  bpf_map_info info{};
  __u32 bytes = sizeof(info);
  std::set<uint32_t> keys;
  if (bpf_obj_get_info_by_fd(map, &info, &bytes) != 0) return keys;
  for (uint32_t key = 0, id = 0; key < info.max_entries; ++key) {
    if (bpf_map_lookup_elem(map, &key, &id) == 0) keys.insert(key);
  }
  return keys;
}

// A place is filled after its map has got a pin, and emptied before that goes. So the pins tell which places to look at; the
// outer map tells too, but up to Linux 6.1 at least each look at a map of maps waits for an RCU grace period (maybe_wait_bpf_programs).
std::set<uint32_t> PinnedKeys(const OuterMap& outer) {
  std::set<uint32_t> keys;
  std::error_code ec;
  for (const auto& pin : std::filesystem::directory_iterator(outer.pins, ec)) {
    const std::string name = pin.path().filename();
    uint32_t key = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), key).ec == std::errc()) keys.insert(key);
  }
  return keys;
}

// Of a place that is not in use. Whether a map was in it.
bool Empty(const OuterMap& outer, uint32_t key) {
  const bool was_filled = bpf_map_delete_elem(outer.fd, &key) == 0;
  for (const char* suffix : {"", kNextPin}) ::unlink((outer.PinOf(key) + suffix).c_str());
  return was_filled;
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
  const std::pair<const char*, const std::set<uint32_t>&> maps[] = {{"ml_jobs", in_use.jobs},     {"ml_words", in_use.words},
                                                                    {"ml_inboxes", in_use.inboxes}, {"ml_wakes", in_use.inboxes},
                                                                    {"ml_rings", in_use.rings},   {"ml_fans", in_use.fans}};
  size_t num_removed = 0;
  for (const auto& [name, used] : maps) {
    const OuterMap outer = program.Outer(name);
    const auto keys = program.found_inner_pins() ? PinnedKeys(outer) : FilledKeys(outer.fd);
    for (const uint32_t key : keys) num_removed += !used.contains(key) && Empty(outer, key);
  }
  return num_removed + RemoveOtherKeys(program.MapFd("ml_keys"), in_use.keys);
}

}  // namespace mlnet::datapath
