// SPDX-License-Identifier: Apache-2.0
// As much of the kernel as the XDP programs need: maps, helpers, the memory of a frame. One CPU. Each value of a map is an allocation
// of its own, and what lies around a frame is poisoned, so that an access beside them is found.
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mlnet::fuzz {

using Bytes = std::vector<uint8_t>;

struct Map {
  Map(uint32_t value_bytes, uint32_t entries);
  /// Null: there is no such entry.
  void* At(uint32_t key);
  /// Of a hash: the entry, zeros where it is new.
  void* Put(uint32_t key);

  uint32_t value_bytes;
  std::vector<std::unique_ptr<uint8_t[]>> values;
  std::map<uint32_t, std::unique_ptr<uint8_t[]>> by_key;  // a hash
  std::map<uint32_t, std::unique_ptr<Map>> inner;  // a map of maps
  std::vector<Bytes> records;                      // a ring
  bool is_full = false;                            // a ring that takes nothing
  int watch = -1;                                  // of World: where it keeps what was in here
};

/// An entry of a map.
struct Entry {
  Map* map;
  uint32_t key;
  auto operator<=>(const Entry&) const = default;
};

/// What a run of a program came to.
struct Ran {
  int action = 0;
  Bytes frame;
  Bytes meta;              // in front of the frame
  const Map* fan = nullptr;  // redirected by
  uint64_t redirect_flags = 0;
};

class Kernel {
 public:
  static Kernel& Get();
  /// A map of the program by its name; made by the first call that gives sizes.
  Map& MapOf(const std::string& name) { return *maps_.at(name); }
  Map& Make(const std::string& name, uint32_t value_bytes, uint32_t entries);

  Ran Run(int (*program)(xdp_md*), std::span<const uint8_t> frame, std::span<const uint8_t> meta = {});

  uint64_t now_ns = 1;
  bool has_meta = true;  // the driver has room for metadata
  std::function<void()> before_mac_check;  // once: what happens elsewhere while a tag is looked at
  std::vector<Entry> looked_up;  // by programs, until somebody clears it: what they may have written to

  // Of the helpers.
  Map* Find(const void* map);
  int TailCall(xdp_md* ctx, uint32_t index);
  long AdjustMeta(xdp_md* ctx, int delta);
  long AdjustTail(xdp_md* ctx, int delta);
  void Lock(const void* lock);
  void Unlock(const void* lock);
  void NoteRedirect(const Map* fan, uint64_t flags);
  /// Helpers may not be called while a lock is held.
  void RequireUnlocked() const;

 private:
  std::map<std::string, std::unique_ptr<Map>> maps_;
  std::map<const void*, Map*> by_symbol_;
  std::vector<uint8_t> memory_;  // of the frame; poisoned but for it while a program runs
  const void* lock_ = nullptr;
  const Map* redirect_ = nullptr;
  uint64_t redirect_flags_ = 0;
};

}  // namespace mlnet::fuzz
