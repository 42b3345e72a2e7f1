// SPDX-License-Identifier: Apache-2.0
#include "fuzz/datapath/world.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "fuzz/require.h"

namespace mlnet::fuzz {
namespace {

constexpr uint32_t kServerInbox = 32;  // of job k: k + this
constexpr uint32_t kSlots = 64, kLinks = 64, kIds = 16, kCells = 10;
constexpr uint16_t kFirstEpoch = 3;
#ifdef MLNET_FUZZ_ASAN
constexpr uint64_t kResetsPerWholeLook = 256;
#else
constexpr uint64_t kResetsPerWholeLook = 1;
#endif

mlnet_addr ToNode(const Address& address) {
  mlnet_addr out;
  std::memcpy(&out, address.bytes.data(), sizeof(out));
  return out;
}

// memcmp is slow under the sanitizer.
bool IsSame(const uint8_t* a, const uint8_t* b, size_t bytes) {
  const auto* x = reinterpret_cast<const uint64_t*>(a);
  const auto* y = reinterpret_cast<const uint64_t*>(b);
  uint64_t differs = 0;
  for (size_t i = 0; i < bytes / 8; ++i) differs |= x[i] ^ y[i];
  return differs == 0;  // all values have whole words
}

Address Mapped(uint8_t a, uint8_t b, uint8_t c, uint8_t d) { return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}}; }

}  // namespace

Address Ipv4(uint8_t last) { return Mapped(10, 0, 0, last); }
Address Ipv6(uint8_t last) { return {{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, last}}; }
Address LocalOf(bool is_ipv6) {
  return is_ipv6 ? Address{{0xfd, 0x6d, 0x6c, 0x6e, 0x65, 0x74, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}} : Mapped(169, 254, 28, 12);
}
Address GroupOf(bool is_ipv6) {
  return is_ipv6 ? Address{{0xff, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x6d, 0x6c, 0, 1}} : Mapped(239, 77, 0, 1);
}

World& World::Get() {
  static World world;
  return world;
}

World::World() : kernel_(Kernel::Get()) {
  slots_ = &kernel_.Make("ml_slots", sizeof(mlnet_slot), kSlots);
  links_ = &kernel_.Make("ml_links", sizeof(mlnet_link), kLinks);
  stats_ = &kernel_.Make("ml_stats", sizeof(mlnet_stats), kIds);
  events_ = &kernel_.Make("ml_events", 0, 0);
  kernel_.Make("ml_fan_state", sizeof(mlnet_fan_state), 1);
  keys_ = &kernel_.Make("ml_keys", sizeof(mlnet_key), 0);
  kernel_.Make("ml_mac_state", sizeof(mlnet_mac_state), 1);
  for (const char* outer : {"ml_jobs", "ml_words", "ml_inboxes", "ml_wakes", "ml_rings", "ml_fans"}) kernel_.Make(outer, sizeof(uint32_t), 0);
  for (Map* map : {slots_, links_}) Watch(*map);
  rings_.push_back(events_);
  Add(1, 0, MLNET_NODE_AGGREGATE | MLNET_NODE_DELIVER, 3, {2});  // a root that has a rank
  Add(1, 1, MLNET_NODE_DELIVER, 3, {1, 2});                      // ranks of another root
  Add(2, 0, MLNET_NODE_AGGREGATE | MLNET_NODE_INNER | MLNET_NODE_DELIVER, 3, {2});
  Add(3, 0, MLNET_NODE_AGGREGATE | MLNET_NODE_SERVER | MLNET_NODE_IPV6, 2, {});
  Add(4, 0, MLNET_NODE_AGGREGATE | MLNET_NODE_MULTICAST | MLNET_NODE_TRACE, 2, {});
  Add(5, 0, MLNET_NODE_AGGREGATE | MLNET_NODE_INNER | MLNET_NODE_IPV6, 2, {});
  Add(6, 0, MLNET_NODE_AGGREGATE | MLNET_NODE_DELIVER, 2, {0, 1});  // all ranks are here
  Add(7, 3, MLNET_NODE_AGGREGATE, 1, {});                           // each packet completes
  Add(8, 0, MLNET_NODE_AGGREGATE | MLNET_NODE_DELIVER | MLNET_NODE_MAC, 3, {2});  // the same roles with a key
  Add(8, 1, MLNET_NODE_DELIVER | MLNET_NODE_MAC, 3, {1, 2});
  Add(9, 0, MLNET_NODE_AGGREGATE | MLNET_NODE_INNER | MLNET_NODE_DELIVER | MLNET_NODE_MAC | MLNET_NODE_IPV6, 3, {2});
  Add(10, 0, MLNET_NODE_AGGREGATE | MLNET_NODE_SERVER | MLNET_NODE_MAC, 2, {});
  for (size_t i = 0; i < watched_.size(); ++i) {
    watched_[i]->watch = static_cast<int>(i);
    auto& before = before_.emplace_back();
    for (const auto& value : watched_[i]->values) {
      const Bytes bytes(value.get(), value.get() + watched_[i]->value_bytes);
      before.push_back({bytes, bytes, false});
    }
  }
}

void World::Watch(Map& map) { watched_.push_back(&map); }

Map& World::NewInner(const char* outer, uint32_t id, uint32_t value_bytes, uint32_t entries) {
  auto& inner = kernel_.MapOf(outer).inner[id];
  if (!inner) inner = std::make_unique<Map>(value_bytes, entries);
  return *inner;
}

Map* World::Inner(const char* outer, uint32_t id) {
  auto& inner = kernel_.MapOf(outer).inner;
  const auto found = inner.find(id);
  return found == inner.end() ? nullptr : found->second.get();
}

mlnet_node& World::Add(uint16_t job, uint8_t tree, uint8_t flags, uint8_t num_children, std::vector<uint8_t> local_children) {
  Map& entry = NewInner("ml_jobs", job, sizeof(mlnet_node), MLNET_TREES_MAX);
  auto& node = *static_cast<mlnet_node*>(entry.At(tree));
  const bool is_ipv6 = (flags & MLNET_NODE_IPV6) != 0, sums = (flags & MLNET_NODE_AGGREGATE) != 0;
  const auto at = is_ipv6 ? Ipv6 : Ipv4;
  node.epoch = kFirstEpoch;
  node.port_be = __builtin_bswap16(MLNET_UDP_PORT);
  node.flags = flags;
  node.n_children = num_children;
  node.members = (1ULL << num_children) - 1;
  node.addr = ToNode(at(kOwn));
  if (sums) node.local = ToNode(LocalOf(is_ipv6));
  node.group = ToNode(GroupOf(is_ipv6));
  node.parent = ToNode(sums ? LocalOf(is_ipv6) : at(kUp));
  node.up = ToNode(at(kUp));
  node.root = ToNode(at(sums && (flags & MLNET_NODE_INNER) == 0 ? kOwn : kUp));
  node.forward_ns = 1'000'000;
  node.up_child = 5;
  node.stats_id = node.inbox_id = node.fan_id = next_id_++;
  node.server_inbox_id = node.stats_id + kServerInbox;
  node.link_base = next_link_;
  next_link_ += num_children;
  for (uint8_t c = 0; c < MLNET_CLASSES_MAX; ++c) node.marks[c] = {static_cast<uint8_t>(8 * c << 2), c};
  for (uint8_t child = 0; child < num_children; ++child) {
    const auto local = std::find(local_children.begin(), local_children.end(), child) - local_children.begin();
    const bool is_local = local < static_cast<long>(local_children.size());
    node.child_addr[child] = ToNode(at(is_local ? kOwn : static_cast<uint8_t>(child + 2)));
    if (!is_local) node.fan_child[node.n_fan++] = child;
    else node.child_local[child] = static_cast<uint8_t>(local + 1);
  }
  for (; node.n_local < local_children.size(); ++node.n_local) {
    node.local_ring[node.n_local] = next_ring_;
    rings_.push_back(&NewInner("ml_rings", next_ring_++, 0, 0));
  }
  node.server_ring_id = next_ring_;
  rings_.push_back(&NewInner("ml_rings", next_ring_++, 0, 0));
  if (node.n_fan > 0) NewInner("ml_fans", node.fan_id, sizeof(bpf_devmap_val), node.n_fan);
  for (const uint32_t inbox : {node.inbox_id, node.server_inbox_id}) {
    if (inbox == node.server_inbox_id && (flags & MLNET_NODE_SERVER) == 0) break;
    Watch(NewInner("ml_inboxes", inbox, sizeof(mlnet_cell), kCells));
    Watch(NewInner("ml_wakes", inbox, sizeof(mlnet_wake), 1));
  }
  next_cell_ = 0;
  AddPool(node, MLNET_CLASS_STREAM(0, 0), 1, true);
  AddPool(node, MLNET_CLASS_STREAM(0, 1), 0, true);
  AddPool(node, MLNET_CLASS_STREAM(2, 0), 1, false);
  trees_.push_back({job, tree, &node});
  return node;
}

// `has_words`: else it is one that waits for its first packet.
void World::AddPool(mlnet_node& node, uint8_t class_stream, uint8_t log2_slots, bool has_words) {
  const uint32_t slots = 1U << log2_slots;
  node.pools[class_stream] = {next_slot_, next_words_, next_cell_, log2_slots, 1, 0};
  if (has_words) Watch(NewInner("ml_words", next_words_, sizeof(mlnet_words), 2 * slots));
  ++next_words_;
  next_slot_ += slots;
  next_cell_ += 2 * slots;
}

const mlnet_node* World::Find(uint16_t job, uint8_t tree) const {
  for (const Tree& one : trees_) {
    if (one.job == job && one.tree == tree) return one.node;
  }
  return nullptr;
}

const mlnet_key& World::KeyOf(uint16_t job, uint16_t epoch) {
  static std::map<uint32_t, mlnet_key> keys;
  const uint32_t id = MLNET_KEY_ID(job, epoch);
  const auto found = keys.find(id);
  return found != keys.end() ? found->second : keys.emplace(id, test::TestKey(id)).first->second;
}

void World::GiveKey(const Tree& tree) {
  if ((tree.node->flags & MLNET_NODE_MAC) == 0) return;
  const mlnet_key& key = KeyOf(tree.job, tree.node->epoch);
  std::memcpy(keys_->Put(MLNET_KEY_ID(tree.job, tree.node->epoch)), &key, sizeof(key));
}

void World::NextEpoch(const Tree& tree) {
  ++tree.node->epoch;
  GiveKey(tree);
}

void World::Reset() {
  REQUIRE(Changes().empty());  // the last packet's have been looked at
  for (const Entry& entry : dirty_) {
    Before& before = BeforeOf(entry);
    std::memcpy(entry.map->At(entry.key), before.at_first.data(), entry.map->value_bytes);
    before.last = before.at_first;
    before.is_dirty = false;
  }
  dirty_.clear();
  if (num_resets_++ % kResetsPerWholeLook == 0) RequireAsAtFirst();
  for (const char* map : {"ml_stats", "ml_fan_state", "ml_mac_state"}) {
    for (const auto& value : kernel_.MapOf(map).values) std::memset(value.get(), 0, kernel_.MapOf(map).value_bytes);
  }
  for (Map* ring : rings_) {
    ring->records.clear();
    ring->is_full = false;
  }
  records_before_.assign(rings_.size(), 0);
  keys_->by_key.clear();
  for (const Tree& tree : trees_) {
    tree.node->epoch = kFirstEpoch;
    GiveKey(tree);
  }
  kernel_.before_mac_check = {};
  kernel_.now_ns = 1;
  kernel_.has_meta = true;
}

std::vector<Entry> World::Changes() {
  std::vector<Entry> changes;
  for (const Entry& entry : kernel_.looked_up) {
    if (entry.map->watch < 0) continue;
    Before& before = BeforeOf(entry);
    const auto* value = static_cast<const uint8_t*>(entry.map->At(entry.key));
    if (IsSame(before.last.data(), value, entry.map->value_bytes)) continue;
    std::memcpy(before.last.data(), value, entry.map->value_bytes);
    if (!before.is_dirty) dirty_.push_back(entry);
    before.is_dirty = true;
    changes.push_back(entry);
  }
  kernel_.looked_up.clear();
  records_before_.resize(rings_.size());
  for (size_t i = 0; i < rings_.size(); ++i) {
    if (rings_[i]->records.size() > records_before_[i]) changes.push_back({rings_[i], 0});
    records_before_[i] = rings_[i]->records.size();
  }
  return changes;
}

void World::SetAsleep(uint32_t inbox, uint64_t mask) {
  Map* wake = Wake(inbox);
  if (wake == nullptr) return;
  static_cast<mlnet_wake*>(wake->At(0))->asleep = mask;
  kernel_.looked_up.push_back({wake, 0});
  Changes();
}

void World::RequireAsAtFirst() {
  for (Map* map : watched_) {
    for (uint32_t key = 0; key < map->values.size(); ++key) {
      REQUIRE(IsSame(BeforeOf({map, key}).at_first.data(), map->values[key].get(), map->value_bytes));
    }
  }
}

}  // namespace mlnet::fuzz
