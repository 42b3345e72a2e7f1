// SPDX-License-Identifier: Apache-2.0
#include "control/node.h"

#include <arpa/inet.h>

#include <algorithm>

#include "control/plan.h"

namespace mlnet::control {
namespace {

uint32_t AddressBe(const std::string& text) {
  in_addr address{};
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ? address.s_addr : 0;
}

void SetPools(const Plan& plan, size_t tree, const TreeIds& ids, mlnet_node& node) {
  uint32_t slot = 0;
  const uint32_t first_cell = 2 * SlotsOf(plan.log2_slots, plan.classes) * static_cast<uint32_t>(tree);
  for (uint32_t i = 0; i < NumPools(plan); ++i) {
    const PoolSize size = PoolOf(plan, i);
    mlnet_pool& pool = node.pools[size.class_stream];
    pool.log2_slots = static_cast<uint8_t>(size.log2_slots);
    pool.is_open = 1;
    pool.cell_base = first_cell + 2 * slot;
    if (!ids.words.empty()) {
      pool.slot_base = ids.slot_base + slot;
      pool.words_id = ids.words[i];
    }
    slot += uint32_t{1} << size.log2_slots;
  }
}

void SetAggregator(const Plan& plan, const PlanTree& tree, const TreeIds& ids, bool multicast, mlnet_node& node) {
  node.flags |= MLNET_NODE_AGGREGATE;
  if (multicast) node.flags |= MLNET_NODE_MULTICAST;
  node.addr_be = AddressBe(tree.address);
  node.local_be = tree.local_address.empty() ? 0 : AddressBe(tree.local_address);
  node.fan_id = ids.fan;
  node.link_base = ids.link_base;
  for (const std::string& host : WorkerHosts(plan)) {
    if (host == tree.aggregator) continue;  // its ranks have the result in their inbox
    const auto first = std::find_if(plan.children.begin(), plan.children.end(), [&](const auto& c) { return c.host == host; });
    node.fan_child[node.n_fan++] = static_cast<uint8_t>(first - plan.children.begin());
  }
}

void SetWorker(const Plan& plan, const PlanTree& tree, const std::string& host, const HostIds& ids, mlnet_node& node) {
  node.flags |= MLNET_NODE_DELIVER;
  node.parent_be = AddressBe(tree.aggregator == host ? tree.local_address : tree.address);
  node.inbox_id = ids.inbox;
  for (const int rank : LocalRanks(plan, host)) {
    node.local_ring[node.n_local] = ids.rings[node.n_local];
    ++node.n_local;
    node.child_local[rank] = node.n_local;
  }
}

}  // namespace

std::vector<int> LocalRanks(const Plan& plan, const std::string& host) {
  std::vector<int> ranks;
  for (const PlanChild& child : plan.children) {
    if (child.host == host) ranks.push_back(child.rank);
  }
  return ranks;
}

uint32_t InboxCells(const Plan& plan) {
  return 2 * SlotsOf(plan.log2_slots, plan.classes) * static_cast<uint32_t>(plan.trees.size());
}

void GroupMac(uint32_t group_be, uint8_t mac[6]) {
  const uint32_t group = ntohl(group_be);
  const uint8_t bytes[6] = {0x01, 0x00, 0x5e, static_cast<uint8_t>((group >> 16) & 0x7f),
                            static_cast<uint8_t>(group >> 8), static_cast<uint8_t>(group)};
  std::copy(bytes, bytes + 6, mac);
}

mlnet_node MakeNode(const Plan& plan, size_t tree, const std::string& host, const HostIds& ids, const Mac& nic_mac,
                    bool multicast) {
  mlnet_node node{};
  const PlanTree& of = plan.trees[tree];
  node.epoch = plan.epoch;
  node.port_be = htons(plan.port);
  node.n_children = static_cast<uint8_t>(plan.children.size());
  node.members = plan.children.size() == 64 ? ~uint64_t{0} : (uint64_t{1} << plan.children.size()) - 1;
  node.stats_id = ids.trees[tree].stats;
  node.group_be = AddressBe(plan.group);
  GroupMac(node.group_be, node.group_mac);
  std::copy(nic_mac.begin(), nic_mac.end(), node.nic_mac);
  for (size_t c = 0; c < plan.children.size(); ++c) node.child_addr_be[c] = AddressBe(plan.children[c].address);
  SetPools(plan, tree, ids.trees[tree], node);
  if (of.aggregator == host) SetAggregator(plan, of, ids.trees[tree], multicast, node);
  if (!LocalRanks(plan, host).empty()) SetWorker(plan, of, host, ids, node);
  return node;
}

}  // namespace mlnet::control
