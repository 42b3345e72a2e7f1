// SPDX-License-Identifier: Apache-2.0
#include "harness/bpf_host.h"

#include <bpf/libbpf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

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

void Put(int map, uint32_t key, const void* value) {
  EXPECT_EQ(bpf_map_update_elem(map, &key, value, BPF_ANY), 0) << strerror(errno);
}

template <typename T>
T Get(int map, uint32_t key) {
  T value{};
  EXPECT_EQ(bpf_map_lookup_elem(map, &key, &value), 0) << strerror(errno);
  return value;
}

template <typename Record>
std::vector<Record> Drain(int ring_fd) {
  std::vector<Record> records;
  auto take = [](void* out, void* data, size_t size) {
    EXPECT_EQ(size, sizeof(Record));
    static_cast<std::vector<Record>*>(out)->push_back(*static_cast<Record*>(data));
    return 0;
  };
  ring_buffer* ring = ring_buffer__new(ring_fd, take, &records, nullptr);
  EXPECT_NE(ring, nullptr);
  ring_buffer__consume(ring);
  ring_buffer__free(ring);
  return records;
}

uint8_t Log2Slots(const JobSpec& spec, size_t pool) {
  return spec.pool_log2_slots.empty() ? spec.log2_slots : spec.pool_log2_slots[pool];
}

}  // namespace

std::array<mlnet_mark, MLNET_CLASSES_MAX> ClassSelectors() {
  std::array<mlnet_mark, MLNET_CLASSES_MAX> marks{};
  for (uint8_t c = 0; c < marks.size(); ++c) marks[c] = {static_cast<uint8_t>(8 * c << 2), c};
  return marks;
}

struct BpfHost::TreeMaps {
  mlnet_node node{};
  std::map<uint8_t, Fd> words;
};

struct BpfHost::JobMaps {
  std::map<uint8_t, TreeMaps> trees;
  uint32_t stats_id = 0;
  Fd entry, inbox, wake, fan;
  std::vector<uint32_t> ring_ids;
  std::vector<Fd> rings;
  Fd server_inbox, server_wake, server_ring;
  uint32_t server_ring_id = 0;
};

std::unique_ptr<BpfHost> BpfHost::Create() {
  libbpf_set_print([](libbpf_print_level level, const char* format, va_list args) {
    return level == LIBBPF_WARN ? vfprintf(stderr, format, args) : 0;
  });
  std::unique_ptr<BpfHost> host(new BpfHost);
  host->skeleton_ = xdp_aggregate::open_and_load();
  if (host->skeleton_ == nullptr) {
    ADD_FAILURE() << "cannot load xdp_aggregate: " << strerror(errno) << " (root or CAP_BPF needed)";
    return nullptr;
  }
  return host;
}

BpfHost::~BpfHost() { xdp_aggregate::destroy(skeleton_); }

BpfHost::JobMaps& BpfHost::MapsOf(const JobSpec& spec) {
  auto& maps = jobs_[spec.job];
  if (!maps) {
    maps = std::make_unique<JobMaps>();
    maps->stats_id = static_cast<uint32_t>(jobs_.size());
    uint32_t cells = 0;
    for (size_t i = 0; i < spec.open_pools.size(); ++i) cells += 2U << Log2Slots(spec, i);
    maps->inbox = NewMap(BPF_MAP_TYPE_ARRAY, "t_inbox", sizeof(mlnet_cell), cells * spec.num_trees,
                         BPF_F_MMAPABLE | BPF_F_INNER_MAP);
    maps->wake = NewMap(BPF_MAP_TYPE_ARRAY, "t_wake", sizeof(mlnet_wake), 1, BPF_F_MMAPABLE);
    for (size_t i = 0; i < spec.local_children.size(); ++i) {
      maps->rings.push_back(NewMap(BPF_MAP_TYPE_RINGBUF, "t_ring", 0, MLNET_NOTICE_RING_BYTES));
      const int ring = maps->rings.back().get();
      maps->ring_ids.push_back(next_ring_);
      Put(bpf_map__fd(skeleton_->maps.ml_rings), next_ring_++, &ring);
    }
    const uint32_t id = maps->stats_id;
    const int inbox = maps->inbox.get(), wake = maps->wake.get();
    Put(bpf_map__fd(skeleton_->maps.ml_inboxes), id, &inbox);
    Put(bpf_map__fd(skeleton_->maps.ml_wakes), id, &wake);
  }
  if ((spec.flags & MLNET_NODE_SERVER) != 0 && !maps->server_inbox) MakeServer(spec, *maps);
  if (!maps->trees.contains(spec.tree)) MakeTree(spec, *maps);
  return *maps;
}

void BpfHost::MakeServer(const JobSpec& spec, JobMaps& maps) {
  uint32_t cells = 0;
  for (size_t i = 0; i < spec.open_pools.size(); ++i) cells += 2U << Log2Slots(spec, i);
  maps.server_inbox = NewMap(BPF_MAP_TYPE_ARRAY, "t_s_inbox", sizeof(mlnet_cell), cells * spec.num_trees,
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
  uint32_t cells = 0;
  for (size_t i = 0; i < spec.open_pools.size(); ++i) cells += 2U << Log2Slots(spec, i);
  uint32_t cell_base = cells * spec.tree;
  for (size_t i = 0; i < spec.open_pools.size(); ++i) {
    const uint8_t pool = spec.open_pools[i], log2_slots = Log2Slots(spec, i);
    const uint32_t slots = 1u << log2_slots;
    tree.node.pools[pool] = {next_slot_, next_words_, cell_base, log2_slots, 1, 0};
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
  for (size_t i = 0; i < spec.local_children.size(); ++i) {
    node.child_local[spec.local_children[i]] = static_cast<uint8_t>(i + 1);
    node.local_ring[i] = maps.ring_ids[i];
  }
}

void BpfHost::SetJob(const JobSpec& spec) {
  JobMaps& maps = MapsOf(spec);
  FillNode(spec, maps, maps.trees.at(spec.tree).node);
  if (!maps.fan) {
    maps.fan = NewMap(BPF_MAP_TYPE_DEVMAP, "t_fan", sizeof(bpf_devmap_val), MLNET_CHILDREN_MAX);
    const int fan = maps.fan.get();
    Put(bpf_map__fd(skeleton_->maps.ml_fans), maps.stats_id, &fan);
  }
  Fd entry = NewMap(BPF_MAP_TYPE_ARRAY, "t_job", sizeof(mlnet_node), MLNET_TREES_MAX);
  for (const auto& [tree, of_tree] : maps.trees) Put(entry.get(), tree, &of_tree.node);
  const int fd = entry.get();
  Put(bpf_map__fd(skeleton_->maps.ml_jobs), spec.job, &fd);
  maps.entry = std::move(entry);
}

namespace {

// data_out starts at the metadata; ctx_out says how much of it there is.
RunResult TestRun(int program, const Bytes& in, size_t meta_bytes) {
  RunResult result;
  Bytes out(in.size() + 512);
  xdp_md ctx_in{}, ctx_out{};
  ctx_in.data = static_cast<uint32_t>(meta_bytes);
  ctx_in.data_end = static_cast<uint32_t>(in.size());
  bpf_test_run_opts opts{};
  opts.sz = sizeof(opts);
  opts.data_in = in.data();
  opts.data_size_in = static_cast<uint32_t>(in.size());
  opts.data_out = out.data();
  opts.data_size_out = static_cast<uint32_t>(out.size());
  opts.ctx_in = &ctx_in;
  opts.ctx_size_in = sizeof(ctx_in);
  opts.ctx_out = &ctx_out;
  opts.ctx_size_out = sizeof(ctx_out);
  opts.repeat = 1;
  EXPECT_EQ(bpf_prog_test_run_opts(program, &opts), 0) << strerror(errno);
  const size_t meta_out = ctx_out.data - ctx_out.data_meta;
  out.resize(opts.data_size_out);
  result.action = static_cast<int>(opts.retval);
  result.meta.assign(out.begin(), out.begin() + static_cast<long>(meta_out));
  result.frame.assign(out.begin() + static_cast<long>(meta_out), out.end());
  return result;
}

}  // namespace

RunResult BpfHost::Run(const Bytes& frame) {
  std::map<uint16_t, mlnet_stats> before;
  before[0] = Stats(0);
  for (const auto& [job, maps] : jobs_) before[job] = Stats(job);
  RunResult result = TestRun(bpf_program__fd(skeleton_->progs.ml_ingress), frame, 0);
  int moved = 0;
  for (const auto& [job, old] : before) {
    const mlnet_stats now = Stats(job);
    for (unsigned v = 0; v < MLNET_V_COUNT; ++v) {
      if (now.verdicts[v] == old.verdicts[v]) continue;
      moved += static_cast<int>(now.verdicts[v] - old.verdicts[v]);
      result.verdict = static_cast<mlnet_verdict>(v);
    }
  }
  EXPECT_EQ(moved, 1) << "a packet ends in exactly one verdict";
  return result;
}

RunResult BpfHost::RunEgress(const Bytes& meta, const Bytes& frame) {
  Bytes in = meta;
  in.insert(in.end(), frame.begin(), frame.end());
  return TestRun(bpf_program__fd(skeleton_->progs.ml_egress_test), in, meta.size());
}

mlnet_slot BpfHost::Slot(uint16_t job, uint8_t class_stream, uint32_t slot, uint8_t tree) {
  return Get<mlnet_slot>(bpf_map__fd(skeleton_->maps.ml_slots),
                         jobs_.at(job)->trees.at(tree).node.pools[class_stream].slot_base + slot);
}

void BpfHost::SetSlot(uint16_t job, uint8_t class_stream, uint32_t slot, const mlnet_slot& value, uint8_t tree) {
  Put(bpf_map__fd(skeleton_->maps.ml_slots), jobs_.at(job)->trees.at(tree).node.pools[class_stream].slot_base + slot, &value);
}

void BpfHost::TakeWordsAway(uint16_t job, uint8_t class_stream) {
  const uint32_t id = jobs_.at(job)->trees.at(0).node.pools[class_stream].words_id;
  ASSERT_EQ(bpf_map_delete_elem(bpf_map__fd(skeleton_->maps.ml_words), &id), 0);
}

void BpfHost::GiveWords(uint16_t job, uint8_t class_stream) {
  const TreeMaps& tree = jobs_.at(job)->trees.at(0);
  const int fd = tree.words.at(class_stream).get();
  Put(bpf_map__fd(skeleton_->maps.ml_words), tree.node.pools[class_stream].words_id, &fd);
}

mlnet_words BpfHost::Words(uint16_t job, uint8_t class_stream, uint32_t slot, uint32_t set) {
  return Get<mlnet_words>(jobs_.at(job)->trees.at(0).words.at(class_stream).get(), slot * 2 + set);
}

mlnet_cell BpfHost::Cell(uint16_t job, uint8_t class_stream, uint32_t slot, uint32_t set) {
  const JobMaps& maps = *jobs_.at(job);
  return Get<mlnet_cell>(maps.inbox.get(), maps.trees.at(0).node.pools[class_stream].cell_base + slot * 2 + set);
}

mlnet_cell BpfHost::ServerCell(uint16_t job, uint8_t class_stream, uint32_t slot, uint32_t set) {
  const JobMaps& maps = *jobs_.at(job);
  return Get<mlnet_cell>(maps.server_inbox.get(), maps.trees.at(0).node.pools[class_stream].cell_base + slot * 2 + set);
}

mlnet_link BpfHost::Link(uint16_t job, uint8_t child) {
  return Get<mlnet_link>(bpf_map__fd(skeleton_->maps.ml_links), jobs_.at(job)->trees.at(0).node.link_base + child);
}

void BpfHost::SetLinkMac(uint16_t job, uint8_t child, const Mac& mac) {
  mlnet_link link{};
  std::memcpy(&link.mac, mac.data(), mac.size());
  Put(bpf_map__fd(skeleton_->maps.ml_links), jobs_.at(job)->trees.at(0).node.link_base + child, &link);
}

void BpfHost::SetAsleep(uint16_t job, uint64_t mask) {
  mlnet_wake wake{mask};
  Put(jobs_.at(job)->wake.get(), 0, &wake);
}

uint64_t BpfHost::Asleep(uint16_t job) { return Get<mlnet_wake>(jobs_.at(job)->wake.get(), 0).asleep; }

std::vector<mlnet_notice> BpfHost::TakeNotices(uint16_t job, uint32_t local) {
  return Drain<mlnet_notice>(jobs_.at(job)->rings.at(local).get());
}

void BpfHost::SetServerAsleep(uint16_t job, uint64_t mask) {
  mlnet_wake wake{mask};
  Put(jobs_.at(job)->server_wake.get(), 0, &wake);
}

std::vector<mlnet_notice> BpfHost::TakeServerNotices(uint16_t job) {
  return Drain<mlnet_notice>(jobs_.at(job)->server_ring.get());
}

std::vector<mlnet_event> BpfHost::TakeEvents() {
  return Drain<mlnet_event>(bpf_map__fd(skeleton_->maps.ml_events));
}

mlnet_stats BpfHost::Stats(uint16_t job) {
  const int cpus = libbpf_num_possible_cpus();
  std::vector<mlnet_stats> per_cpu(static_cast<size_t>(cpus));
  const uint32_t key = job == 0 ? 0 : jobs_.at(job)->stats_id;
  EXPECT_EQ(bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.ml_stats), &key, per_cpu.data()), 0);
  mlnet_stats sum{};
  for (const mlnet_stats& one : per_cpu) {
    for (unsigned v = 0; v < MLNET_VERDICTS_MAX; ++v) sum.verdicts[v] += one.verdicts[v];
    sum.bytes_in += one.bytes_in;
    sum.words_summed += one.words_summed;
    sum.contributions += one.contributions;
    sum.results += one.results;
  }
  return sum;
}

int BpfHost::InboxFd(uint16_t job) const { return jobs_.at(job)->inbox.get(); }
int BpfHost::WakeFd(uint16_t job) const { return jobs_.at(job)->wake.get(); }
int BpfHost::RingFd(uint16_t job, uint32_t local) const { return jobs_.at(job)->rings.at(local).get(); }
int BpfHost::ServerInboxFd(uint16_t job) const { return jobs_.at(job)->server_inbox.get(); }
int BpfHost::ServerWakeFd(uint16_t job) const { return jobs_.at(job)->server_wake.get(); }
int BpfHost::ServerRingFd(uint16_t job) const { return jobs_.at(job)->server_ring.get(); }

}  // namespace mlnet::test
