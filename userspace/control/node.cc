// SPDX-License-Identifier: Apache-2.0
#include "control/node.h"

#include <arpa/inet.h>

#include <algorithm>

#include "control/plan.h"
#include "control/tree.h"

namespace mlnet::control {
namespace {

constexpr uint32_t kForwardNs = 500'000;  // under the shortest timer of a rank, over a round trip of the network above

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

void SetSumming(const Plan& plan, size_t tree, size_t at, const TreeIds& ids, mlnet_node& node) {
  const PlanPort& own = PortOf(plan, tree, at);
  const auto children = ChildrenOf(plan, tree, at);
  node.flags |= MLNET_NODE_AGGREGATE;
  node.addr_be = AddressBe(own.address);
  if (!LocalRanks(plan, own.host).empty()) node.local_be = AddressBe(own.local_address);
  node.fan_id = ids.fan;
  node.link_base = ids.link_base;
  node.n_children = static_cast<uint8_t>(children.size());
  node.members = children.size() == 64 ? ~uint64_t{0} : (uint64_t{1} << children.size()) - 1;
  for (size_t c = 0; c < children.size(); ++c) node.child_addr_be[c] = AddressBe(children[c].address);
  for (const size_t child : FanOf(plan, tree, at)) node.fan_child[node.n_fan++] = static_cast<uint8_t>(child);
}

void SetInner(const Plan& plan, size_t tree, size_t at, const Mac& up_mac, mlnet_node& node) {
  node.flags |= MLNET_NODE_INNER;
  node.up_be = AddressBe(PortOf(plan, tree, NodeAbove(plan, tree, at)).address);
  node.up_child = IndexAbove(plan, tree, at);
  std::copy(up_mac.begin(), up_mac.end(), node.up_mac);
  node.forward_ns = kForwardNs;
}

void SetWorker(const Plan& plan, size_t tree, size_t at, const HostIds& ids, mlnet_node& node) {
  node.flags |= MLNET_NODE_DELIVER;
  node.parent_be = node.local_be;
  if (!IsSumming(plan, tree, at)) node.parent_be = AddressBe(PortOf(plan, tree, NodeAbove(plan, tree, at)).address);
  node.inbox_id = ids.inbox;
  for (const int rank : LocalRanks(plan, PortOf(plan, tree, at).host)) {
    node.local_ring[node.n_local] = ids.rings[node.n_local];
    ++node.n_local;
    node.child_local[ChildIndexOf(plan, tree, rank)] = node.n_local;
  }
}

}  // namespace

uint32_t InboxCells(const Plan& plan) {
  return 2 * SlotsOf(plan.log2_slots, plan.classes) * static_cast<uint32_t>(plan.trees.size());
}

void GroupMac(uint32_t group_be, uint8_t mac[6]) {
  const uint32_t group = ntohl(group_be);
  const uint8_t bytes[6] = {0x01, 0x00, 0x5e, static_cast<uint8_t>((group >> 16) & 0x7f),
                            static_cast<uint8_t>(group >> 8), static_cast<uint8_t>(group)};
  std::copy(bytes, bytes + 6, mac);
}

mlnet_node MakeNode(const Plan& plan, size_t tree, const std::string& host, const HostIds& ids, const HostMacs& macs,
                    bool multicast) {
  mlnet_node node{};
  const TreeIds& of_tree = ids.trees[tree];
  node.epoch = plan.epoch;
  node.port_be = htons(plan.port);
  node.stats_id = of_tree.stats;
  node.group_be = AddressBe(plan.group);
  GroupMac(node.group_be, node.group_mac);
  std::copy(macs.nic.begin(), macs.nic.end(), node.nic_mac);
  SetPools(plan, tree, of_tree, node);
  const auto at = FindNode(plan, tree, host);
  if (!at) return node;
  if (IsSumming(plan, tree, *at)) SetSumming(plan, tree, *at, of_tree, node);
  if (*at == 0 && multicast) node.flags |= MLNET_NODE_MULTICAST;
  if (IsInner(plan, tree, host)) SetInner(plan, tree, *at, macs.up, node);
  node.root_be = AddressBe(RootOf(plan, tree).address);
  if (!LocalRanks(plan, host).empty()) SetWorker(plan, tree, *at, ids, node);
  return node;
}

}  // namespace mlnet::control
