// SPDX-License-Identifier: Apache-2.0
#include "control/node.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "base/ip_address.h"
#include "control/plan.h"
#include "control/tree.h"

namespace mlnet::control {
namespace {

constexpr uint32_t kForwardNs = 500'000;  // under the shortest timer of a rank, over a round trip of the network above

mlnet_addr NodeAddress(const std::string& text) {
  mlnet_addr out{};
  if (const auto address = IpAddress::Parse(text)) std::memcpy(&out, address->mapped().data(), sizeof(out));
  return out;
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
  node.addr = NodeAddress(own.address);
  if (!LocalRanks(plan, own.host).empty() || own.host == plan.server_host) node.local = NodeAddress(own.local_address);
  node.fan_id = ids.fan;
  node.link_base = ids.link_base;
  node.n_children = static_cast<uint8_t>(children.size());
  node.members = children.size() == 64 ? ~uint64_t{0} : (uint64_t{1} << children.size()) - 1;
  for (size_t c = 0; c < children.size(); ++c) node.child_addr[c] = NodeAddress(children[c].address);
  for (const size_t child : FanOf(plan, tree, at)) node.fan_child[node.n_fan++] = static_cast<uint8_t>(child);
}

void SetInner(const Plan& plan, size_t tree, size_t at, const Mac& up_mac, mlnet_node& node) {
  node.flags |= MLNET_NODE_INNER;
  node.up = NodeAddress(PortOf(plan, tree, NodeAbove(plan, tree, at)).address);
  node.up_child = IndexAbove(plan, tree, at);
  std::copy(up_mac.begin(), up_mac.end(), node.up_mac);
  node.forward_ns = kForwardNs;
}

void SetServer(const HostIds& ids, mlnet_node& node) {
  node.flags |= MLNET_NODE_SERVER;
  node.server_inbox_id = ids.server_inbox;
  node.server_ring_id = ids.server_ring;
  node.forward_ns = kForwardNs;
}

void SetWorker(const Plan& plan, size_t tree, size_t at, const HostIds& ids, mlnet_node& node) {
  node.flags |= MLNET_NODE_DELIVER;
  node.parent = node.local;
  if (!IsSumming(plan, tree, at)) node.parent = NodeAddress(PortOf(plan, tree, NodeAbove(plan, tree, at)).address);
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

Mac GroupMac(const std::string& group) {
  const auto address = IpAddress::Parse(group).value_or(IpAddress());
  const IpAddress::Mapped& b = address.mapped();
  if (address.IsIpv6()) return {0x33, 0x33, b[12], b[13], b[14], b[15]};
  return {0x01, 0x00, 0x5e, static_cast<uint8_t>(b[13] & 0x7f), b[14], b[15]};
}

mlnet_node MakeNode(const Plan& plan, size_t tree, const std::string& host, const HostIds& ids, const HostMacs& macs,
                    bool multicast) {
  mlnet_node node{};
  const TreeIds& of_tree = ids.trees[tree];
  node.epoch = plan.epoch;
  node.port_be = htons(plan.port);
  node.stats_id = of_tree.stats;
  node.group = NodeAddress(plan.group);
  const Mac group_mac = GroupMac(plan.group);
  std::copy(group_mac.begin(), group_mac.end(), node.group_mac);
  std::copy(macs.nic.begin(), macs.nic.end(), node.nic_mac);
  SetPools(plan, tree, of_tree, node);
  const auto at = FindNode(plan, tree, host);
  if (!at) return node;
  if (IsSumming(plan, tree, *at)) SetSumming(plan, tree, *at, of_tree, node);
  if (*at == 0 && multicast) node.flags |= MLNET_NODE_MULTICAST;
  if (IsInner(plan, tree, host)) SetInner(plan, tree, *at, macs.up, node);
  if (*at == 0 && host == plan.server_host) SetServer(ids, node);
  node.root = NodeAddress(RootOf(plan, tree).address);
  if (!LocalRanks(plan, host).empty()) SetWorker(plan, tree, *at, ids, node);
  if (IsIpv6(plan)) node.flags |= MLNET_NODE_IPV6;
  return node;
}

HostIds IdsIn(const Plan& plan, const std::string& host, const std::vector<mlnet_node>& nodes) {
  HostIds ids;
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    const mlnet_node& node = nodes.at(t);
    TreeIds& tree = ids.trees.emplace_back();
    tree.stats = node.stats_id;
    if ((node.flags & MLNET_NODE_SERVER) != 0) {
      ids.server_inbox = node.server_inbox_id;
      ids.server_ring = node.server_ring_id;
    }
    if ((node.flags & MLNET_NODE_DELIVER) != 0) {
      ids.inbox = node.inbox_id;
      ids.rings.assign(node.local_ring, node.local_ring + std::min<size_t>(node.n_local, LocalRanks(plan, host).size()));
    }
    if ((node.flags & MLNET_NODE_AGGREGATE) == 0) continue;
    tree.fan = node.fan_id;
    tree.link_base = node.link_base;
    tree.slot_base = node.pools[PoolOf(plan, 0).class_stream].slot_base;
    for (uint32_t i = 0; i < NumPools(plan); ++i) tree.words.push_back(node.pools[PoolOf(plan, i).class_stream].words_id);
  }
  return ids;
}

bool IsSameNode(const mlnet_node& there, const mlnet_node& wanted) {
  mlnet_node now = wanted;
  std::copy(std::begin(there.nic_mac), std::end(there.nic_mac), now.nic_mac);
  std::copy(std::begin(there.up_mac), std::end(there.up_mac), now.up_mac);
  std::copy(std::begin(there.marks), std::end(there.marks), now.marks);
  now.uid = there.uid;
  now.forward_ns = there.forward_ns;
  now.flags |= there.flags & MLNET_NODE_TRACE;
  return std::memcmp(&now, &there, sizeof(now)) == 0;
}

}  // namespace mlnet::control
