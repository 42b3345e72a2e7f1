// SPDX-License-Identifier: Apache-2.0
// The tables of a simulated job on all of its hosts.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "sim/cluster.h"

namespace mlnet::sim {
namespace {

// Loading takes a while and hosts keep jobs apart, so all clusters of a process share them.
test::BpfHost* HostNumber(size_t index) {
  static std::vector<std::unique_ptr<test::BpfHost>> hosts;
  while (hosts.size() <= index) hosts.push_back(test::BpfHost::Create());
  return hosts[index].get();
}

mlnet_stats Difference(mlnet_stats stats, const mlnet_stats& before) {
  for (unsigned v = 0; v < MLNET_VERDICTS_MAX; ++v) stats.verdicts[v] -= before.verdicts[v];
  stats.bytes_in -= before.bytes_in;
  stats.words_summed -= before.words_summed;
  stats.contributions -= before.contributions;
  stats.results -= before.results;
  return stats;
}

}  // namespace

// Clusters of a kind are epochs of one job. What the last one left in slots, inboxes and rings stays there, as it does on
// real hosts: it must not matter.
void Cluster::ChooseJob() {
  static std::map<std::tuple<int, int, int, bool, std::vector<uint8_t>>, std::pair<uint16_t, uint16_t>> jobs;
  if (options_.log2_slots_most == 0) options_.log2_slots_most = options_.log2_slots;
  if (options_.trees_most == 0) options_.trees_most = options_.trees;
  auto& [job, epoch] = jobs[{options_.log2_slots_most, options_.fixup_log2_slots, options_.trees_most, options_.has_server,
                             options_.classes}];
  if (job == 0) job = static_cast<uint16_t>(jobs.size());
  job_ = job;
  EXPECT_LT(epoch, UINT16_MAX) << "no pair of job and epoch is used twice; more processes have more of them";
  epoch_ = ++epoch;
  constexpr wire::JobKey kJobKey{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  if (options_.has_mac) key_ = std::make_shared<const mlnet_key>(wire::DeriveKey(kJobKey, job_, epoch_));
}

worker::TreeConfig Cluster::TreeOf(int tree) const {
  worker::TreeConfig config;
  config.tree = static_cast<uint8_t>(tree);
  config.aggregator = "192.0.2." + std::to_string(RootOf(tree) + 1) + ":28012";
  uint32_t cells = 0;
  for (const uint8_t pool : Pools()) cells += 2U << Log2Most(pool);
  uint32_t cell_base = cells * static_cast<uint32_t>(tree);
  for (const uint8_t pool : Pools()) {
    const uint8_t log2_slots = Log2Slots(pool);
    (MLNET_STREAM(pool) == 0 ? config.pools : config.fixups)[MLNET_CLASS(pool)] = {true, log2_slots, cell_base,
                                                                                   options_.first_seq};
    cell_base += 2U << Log2Most(pool);
  }
  return config;
}

std::vector<std::vector<int>> Cluster::RanksBehind(int node, int tree) const {
  std::vector<std::vector<int>> ranks;
  for (const Child& child : shape_.ChildrenOf(node, tree)) {
    ranks.push_back(child.rank >= 0 ? std::vector<int>{child.rank} : shape_.RanksOf(child.host));
  }
  return ranks;
}

test::JobSpec Cluster::JobOf(int host, int tree) const {
  test::JobSpec spec;
  const int root = RootOf(tree);
  const bool is_node = shape_.IsNode(host, tree);
  const int node = is_node ? host : shape_.ParentOf(host, tree);  // that the ranks here send to
  spec.job = job_;
  spec.epoch = epoch_;
  spec.is_between_epochs = true;
  spec.tree = static_cast<uint8_t>(tree);
  spec.num_trees = static_cast<uint8_t>(options_.trees_most);
  spec.key = key_.get();
  spec.aggregator = Wiring::IpOf(node);
  spec.root = Wiring::IpOf(root);
  spec.group = Wiring::GroupIp();
  for (const Child& child : shape_.ChildrenOf(node, tree)) spec.child_addr.push_back(Wiring::IpOf(child.host));
  if (host < num_hosts_) spec.flags = MLNET_NODE_DELIVER;
  else spec.flags = 0;
  if (is_node) spec.flags |= MLNET_NODE_AGGREGATE;
  if (host == root && options_.is_multicast) spec.flags |= MLNET_NODE_MULTICAST;
  if (is_node && host < num_hosts_) spec.local = Wiring::LocalIp();
  if (options_.has_server && host == root) {
    spec.flags |= MLNET_NODE_SERVER;
    spec.local = Wiring::LocalIp();
    spec.forward_ns = options_.forward_ns;
  }
  if (is_node && host != root) {
    const int parent = shape_.ParentOf(host, tree);
    spec.flags |= MLNET_NODE_INNER;
    spec.up = Wiring::IpOf(parent);
    spec.up_mac = Wiring::MacOf(parent);
    spec.up_child = static_cast<uint8_t>(shape_.NodeIndexOf(host, tree));
    spec.forward_ns = options_.forward_ns;
  }
  for (const int rank : shape_.RanksOf(host)) {
    spec.local_children.push_back(static_cast<uint8_t>(shape_.ChildIndexOf(rank, tree)));
  }
  for (const uint8_t pool : Pools()) {
    spec.open_pools.push_back(pool);
    spec.pool_log2_slots.push_back(Log2Slots(pool));
    spec.pool_log2_most.push_back(Log2Most(pool));
  }
  return spec;
}

void Cluster::SetUpHosts() {
  const int num_all = options_.workers_sum ? num_hosts_ : num_hosts_ + options_.trees;
  for (int h = 0; h < num_all; ++h) {
    Host& host = hosts_.emplace_back();
    host.bpf = HostNumber(static_cast<size_t>(h));
    for (int t = 0; t < options_.trees_most; ++t) {
      const bool is_in_tree = t < options_.trees && (h < num_hosts_ || h == RootOf(t));
      if (is_in_tree) host.bpf->SetJob(JobOf(h, t));
      else host.bpf->TakeTreeAway(job_, static_cast<uint8_t>(t));
      host.copies.push_back(shape_.CopiesOf(h, t));
    }
    host.before = host.bpf->Stats(job_);
    host.verdicts_before = host.bpf->Verdicts();
  }
}

// As class_stream: the classes, then their fix-up streams.
std::vector<uint8_t> Cluster::Pools() const {
  std::vector<uint8_t> pools = options_.classes;
  for (const uint8_t c : options_.classes) pools.push_back(MLNET_CLASS_STREAM(c, 1));
  return pools;
}

uint8_t Cluster::Log2Slots(uint8_t pool) const {
  return MLNET_STREAM(pool) == 0 ? options_.log2_slots : options_.fixup_log2_slots;
}

uint8_t Cluster::Log2Most(uint8_t pool) const {
  return MLNET_STREAM(pool) == 0 ? options_.log2_slots_most : options_.fixup_log2_slots;
}

// The state that a job which has run since seq 0 would have left just before first_seq.
void Cluster::SetUpSlots() {
  if (options_.first_seq == 0) return;
  EXPECT_FALSE(options_.combines || options_.racks > 0) << "slots of inner nodes are not set up";
  const uint64_t members = options_.ranks == 64 ? ~0ULL : (1ULL << options_.ranks) - 1;
  for (const uint8_t pool : Pools()) {
    const uint64_t slots = 1ULL << Log2Slots(pool);
    for (uint64_t next = options_.first_seq; next < options_.first_seq + slots; ++next) {
      mlnet_slot slot{};
      for (uint64_t back = slots; back <= 2 * slots; back += slots) {
        mlnet_set& set = slot.set[((next - back) / slots) % 2];
        set.seq = next - back;
        set.contributed = set.proved = members;
        set.epoch = epoch_;
        set.state = MLNET_SET_COMPLETE;
      }
      for (int t = 0; t < options_.trees; ++t) {
        hosts_[static_cast<size_t>(RootOf(t))].bpf->SetSlot(job_, pool, static_cast<uint32_t>(next % slots), slot,
                                                        static_cast<uint8_t>(t));
      }
    }
  }
}

mlnet_stats Cluster::HostStats(int host) {
  const Host& of = hosts_[static_cast<size_t>(host)];
  return Difference(of.bpf->Stats(job_), of.before);
}

}  // namespace mlnet::sim
