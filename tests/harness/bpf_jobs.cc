// SPDX-License-Identifier: Apache-2.0
// The tables of a job as mlnetd would write them: entry, pools, inboxes, rings.
#include <bpf/libbpf.h>

#include <algorithm>

#include "harness/bpf_host_maps.h"
#include "mlnet/config.h"  // the skeleton names its struct
#include "xdp_aggregate.skel.h"

namespace mlnet::test {
namespace {

constexpr uint32_t kFirstServerInbox = MLNET_INBOXES_MAX / 2;

mlnet_addr ToNode(const Address& address) {
  mlnet_addr out;
  std::memcpy(&out, address.bytes.data(), sizeof(out));
  return out;
}

Fd NewMap(bpf_map_type type, const char* name, uint32_t value_size, uint32_t entries, uint32_t flags = 0) {
  bpf_map_create_opts opts{};
  opts.sz = sizeof(opts);
  opts.map_flags = flags;
  const uint32_t key_size = type == BPF_MAP_TYPE_RINGBUF ? 0 : 4;
  Fd fd(bpf_map_create(type, name, key_size, value_size, entries, &opts));
  EXPECT_TRUE(fd) << name << ": " << strerror(errno);
  return fd;
}

uint8_t Log2Slots(const JobSpec& spec, size_t pool) {
  return spec.pool_log2_slots.empty() ? spec.log2_slots : spec.pool_log2_slots[pool];
}

uint8_t Log2Most(const JobSpec& spec, size_t pool) {
  return spec.pool_log2_most.empty() ? Log2Slots(spec, pool) : spec.pool_log2_most[pool];
}

uint32_t CellsOfTree(const JobSpec& spec) {
  uint32_t cells = 0;
  for (size_t i = 0; i < spec.open_pools.size(); ++i) cells += 2U << Log2Most(spec, i);
  return cells;
}

}  // namespace

BpfHost::JobMaps& BpfHost::MapsOf(const JobSpec& spec) {
  auto& maps = jobs_[spec.job];
  if (!maps) {
    maps = std::make_unique<JobMaps>();
    maps->stats_id = static_cast<uint32_t>(jobs_.size());
    maps->inbox = NewMap(BPF_MAP_TYPE_ARRAY, "t_inbox", sizeof(mlnet_cell), CellsOfTree(spec) * spec.num_trees,
                         BPF_F_MMAPABLE | BPF_F_INNER_MAP);
    maps->wake = NewMap(BPF_MAP_TYPE_ARRAY, "t_wake", sizeof(mlnet_wake), 1, BPF_F_MMAPABLE);
    const uint32_t id = maps->stats_id;
    const int inbox = maps->inbox.get(), wake = maps->wake.get();
    Put(bpf_map__fd(skeleton_->maps.ml_inboxes), id, &inbox);
    Put(bpf_map__fd(skeleton_->maps.ml_wakes), id, &wake);
  }
  MakeRings(spec, *maps);
  if ((spec.flags & MLNET_NODE_SERVER) != 0 && !maps->server_inbox) MakeServer(spec, *maps);
  if (!maps->trees.contains(spec.tree)) MakeTree(spec, *maps);
  return *maps;
}

void BpfHost::MakeRings(const JobSpec& spec, JobMaps& maps) {
  while (maps.rings.size() < spec.local_children.size()) {
    maps.rings.push_back(NewMap(BPF_MAP_TYPE_RINGBUF, "t_ring", 0, MLNET_NOTICE_RING_BYTES));
    const int ring = maps.rings.back().get();
    maps.ring_ids.push_back(next_ring_);
    Put(bpf_map__fd(skeleton_->maps.ml_rings), next_ring_++, &ring);
  }
}

void BpfHost::MakeServer(const JobSpec& spec, JobMaps& maps) {
  maps.server_inbox = NewMap(BPF_MAP_TYPE_ARRAY, "t_s_inbox", sizeof(mlnet_cell), CellsOfTree(spec) * spec.num_trees,
                             BPF_F_MMAPABLE | BPF_F_INNER_MAP);
  maps.server_wake = NewMap(BPF_MAP_TYPE_ARRAY, "t_s_wake", sizeof(mlnet_wake), 1, BPF_F_MMAPABLE);
  maps.server_ring = NewMap(BPF_MAP_TYPE_RINGBUF, "t_s_ring", 0, MLNET_NOTICE_RING_BYTES);
  maps.server_ring_id = next_ring_++;
  const int inbox = maps.server_inbox.get(), wake = maps.server_wake.get(), ring = maps.server_ring.get();
  Put(bpf_map__fd(skeleton_->maps.ml_inboxes), kFirstServerInbox + maps.stats_id, &inbox);
  Put(bpf_map__fd(skeleton_->maps.ml_wakes), kFirstServerInbox + maps.stats_id, &wake);
  Put(bpf_map__fd(skeleton_->maps.ml_rings), maps.server_ring_id, &ring);
}

void BpfHost::MakeTree(const JobSpec& spec, JobMaps& maps) {
  TreeMaps& tree = maps.trees[spec.tree];
  tree.node.link_base = next_link_;
  next_link_ += MLNET_CHILDREN_MAX;
  uint32_t cell_base = CellsOfTree(spec) * spec.tree;
  for (size_t i = 0; i < spec.open_pools.size(); ++i) {
    const uint8_t pool = spec.open_pools[i];
    const uint32_t slots = 1u << Log2Most(spec, i);
    tree.node.pools[pool] = {next_slot_, next_words_, cell_base, 0, 1, 0};
    tree.words[pool] = NewMap(BPF_MAP_TYPE_ARRAY, "t_words", sizeof(mlnet_words), 2 * slots,
                              BPF_F_MMAPABLE | BPF_F_INNER_MAP);
    const int fd = tree.words[pool].get();
    Put(bpf_map__fd(skeleton_->maps.ml_words), next_words_, &fd);
    next_slot_ += slots;
    next_words_++;
    cell_base += 2 * slots;
  }
}

void BpfHost::FillNode(const JobSpec& spec, const JobMaps& maps, mlnet_node& node) {
  node.epoch = spec.epoch;
  node.port_be = __builtin_bswap16(MLNET_UDP_PORT);
  node.flags = spec.flags;
  node.n_children = static_cast<uint8_t>(spec.child_addr.size());
  node.n_local = static_cast<uint8_t>(spec.local_children.size());
  node.members = node.n_children == 64 ? ~0ULL : (1ULL << node.n_children) - 1;
  if (spec.key != nullptr) node.flags |= MLNET_NODE_MAC;
  if (spec.aggregator.IsIpv6()) node.flags |= MLNET_NODE_IPV6;
  node.addr = ToNode(spec.aggregator);
  node.local = ToNode(spec.local);
  node.parent = ToNode(spec.local.IsSet() ? spec.local : spec.aggregator);
  node.root = ToNode(spec.root.IsSet() ? spec.root : spec.aggregator);
  node.up = ToNode(spec.up);
  node.up_child = spec.up_child;
  std::memcpy(node.up_mac, spec.up_mac.data(), spec.up_mac.size());
  node.forward_ns = spec.forward_ns;
  std::copy(spec.marks.begin(), spec.marks.end(), node.marks);
  node.uid = MLNET_UID_ANY;
  node.group = ToNode(spec.group);
  node.inbox_id = node.fan_id = node.stats_id = maps.stats_id;
  node.server_inbox_id = kFirstServerInbox + maps.stats_id;
  node.server_ring_id = maps.server_ring_id;
  const Mac group_mac = GroupMac(spec.group);
  std::copy(group_mac.begin(), group_mac.end(), node.group_mac);
  for (size_t i = 0; i < spec.open_pools.size(); ++i) node.pools[spec.open_pools[i]].log2_slots = Log2Slots(spec, i);
  node.n_fan = 0;
  std::vector<Address> seen;
  for (uint8_t child = 0; child < node.n_children; ++child) {
    node.child_addr[child] = ToNode(spec.child_addr[child]);
    // Copies are for other hosts: a result is in this one's inbox already.
    if (spec.local.IsSet() && std::count(spec.local_children.begin(), spec.local_children.end(), child) > 0) continue;
    if (std::find(seen.begin(), seen.end(), spec.child_addr[child]) != seen.end()) continue;
    seen.push_back(spec.child_addr[child]);
    node.fan_child[node.n_fan++] = child;
  }
  std::fill(std::begin(node.child_local), std::end(node.child_local), 0);
  for (size_t i = 0; i < spec.local_children.size(); ++i) {
    node.child_local[spec.local_children[i]] = static_cast<uint8_t>(i + 1);
    node.local_ring[i] = maps.ring_ids[i];
  }
}

void BpfHost::SetJob(const JobSpec& spec) {
  JobMaps& maps = MapsOf(spec);
  FillNode(spec, maps, maps.trees.at(spec.tree).node);
  if (spec.key != nullptr) Put(bpf_map__fd(skeleton_->maps.ml_keys), MLNET_KEY_ID(spec.job, spec.epoch), spec.key);
  if (!maps.fan) {
    maps.fan = NewMap(BPF_MAP_TYPE_DEVMAP, "t_fan", sizeof(bpf_devmap_val), MLNET_CHILDREN_MAX);
    const int fan = maps.fan.get();
    Put(bpf_map__fd(skeleton_->maps.ml_fans), maps.stats_id, &fan);
  }
  WriteEntry(spec, maps);
}

void BpfHost::TakeTreeAway(uint16_t job, uint8_t tree) {
  const auto found = jobs_.find(job);
  const mlnet_node none{};
  if (found != jobs_.end() && found->second->trees.contains(tree)) Put(found->second->entry.get(), tree, &none);
}

void BpfHost::WriteEntry(const JobSpec& spec, JobMaps& maps) {
  if (spec.is_between_epochs && maps.entry) {
    const mlnet_node& node = maps.trees.at(spec.tree).node;
    Put(maps.entry.get(), spec.tree, &node);
    for (uint8_t child = 0; child < node.n_children; ++child) SetLinkMac(spec.job, child, {}, spec.tree);
    return;
  }
  Fd entry = NewMap(BPF_MAP_TYPE_ARRAY, "t_job", sizeof(mlnet_node), MLNET_TREES_MAX);
  for (const auto& [tree, of_tree] : maps.trees) Put(entry.get(), tree, &of_tree.node);
  const int fd = entry.get();
  Put(bpf_map__fd(skeleton_->maps.ml_jobs), spec.job, &fd);
  maps.entry = std::move(entry);
}

}  // namespace mlnet::test
