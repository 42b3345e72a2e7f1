// SPDX-License-Identifier: Apache-2.0
// The jobs of the host that packets are fuzzed on: one in each role that a host can have, with pools of a few slots.
#pragma once

#include <string>
#include <vector>

#include "fuzz/datapath/kernel.h"
#include "harness/frame.h"
#include "harness/reference_mac.h"
#include "mlnet/job.h"

namespace mlnet::fuzz {

using test::Address;

Address Ipv4(uint8_t last);
Address Ipv6(uint8_t last);
Address LocalOf(bool is_ipv6);  // where this host's ranks send to
Address GroupOf(bool is_ipv6);

constexpr uint8_t kOwn = 1, kUp = 9;  // last bytes of addresses; child k is at k + 2

/// A tree of a job here.
struct Tree {
  uint16_t job = 0;
  uint8_t tree = 0;
  mlnet_node* node = nullptr;
};

class World {
 public:
  /// Of this process: the maps are made once.
  static World& Get();
  /// As it was at first.
  void Reset();

  const std::vector<Tree>& trees() const { return trees_; }
  /// Null: no such tree of no such job.
  const mlnet_node* Find(uint16_t job, uint8_t tree) const;

  /// The key that members of a job have.
  static const mlnet_key& KeyOf(uint16_t job, uint16_t epoch);
  /// Null: the host does not have it.
  const mlnet_key* FindKey(uint16_t job, uint16_t epoch) const { return static_cast<mlnet_key*>(keys_->At(MLNET_KEY_ID(job, epoch))); }
  void GiveKey(const Tree& tree);
  void TakeKey(const Tree& tree) { keys_->by_key.erase(MLNET_KEY_ID(tree.job, tree.node->epoch)); }
  void NextEpoch(const Tree& tree);

  Map& slots() { return *slots_; }
  Map& links() { return *links_; }
  /// Null: it has none.
  Map* Words(uint32_t id) { return Inner("ml_words", id); }
  Map* Inbox(uint32_t id) { return Inner("ml_inboxes", id); }
  Map* Ring(uint32_t id) { return Inner("ml_rings", id); }
  Map* Wake(uint32_t id) { return Inner("ml_wakes", id); }
  Map& events() { return *events_; }
  const mlnet_stats& Stats(uint32_t id) const { return *static_cast<mlnet_stats*>(stats_->At(id)); }
  uint32_t num_stats() const { return next_id_; }

  /// What differs from the last call, once each: entries of slots, words, cells, links and wakes; rings that have got a record, as key 0.
  /// It looks at what programs have looked up: they have no other way to an entry, and the sanitizer sees whoever leaves it. Now and then
  /// Reset looks at all.
  std::vector<Entry> Changes();
  /// As the ranks of an inbox write it, which is no change.
  void SetAsleep(uint32_t inbox, uint64_t mask);

 private:
  World();
  Map* Inner(const char* outer, uint32_t id);
  mlnet_node& Add(uint16_t job, uint8_t tree, uint8_t flags, uint8_t num_children, std::vector<uint8_t> local_children);
  void AddPool(mlnet_node& node, uint8_t class_stream, uint8_t log2_slots, bool has_words);
  Map& NewInner(const char* outer, uint32_t id, uint32_t value_bytes, uint32_t entries);
  void Watch(Map& map);
  struct Before {
    Bytes at_first, last;
    bool is_dirty = false;  // no longer as at first
  };
  Before& BeforeOf(const Entry& entry) { return before_[static_cast<size_t>(entry.map->watch)][entry.key]; }
  void RequireAsAtFirst();

  Kernel& kernel_;
  Map *slots_, *links_, *events_, *stats_, *keys_;
  std::vector<Tree> trees_;
  std::vector<Map*> watched_, rings_;
  std::vector<std::vector<Before>> before_;  // of the maps that are watched, by key
  std::vector<Entry> dirty_;
  uint64_t num_resets_ = 0;
  std::vector<size_t> records_before_;
  uint32_t next_id_ = 1, next_slot_ = 0, next_words_ = 1, next_link_ = 0, next_ring_ = 1, next_cell_ = 0;
};

}  // namespace mlnet::fuzz
