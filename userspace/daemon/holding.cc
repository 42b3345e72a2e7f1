// SPDX-License-Identifier: Apache-2.0
#include "daemon/holding.h"

#include "control/plan.h"
#include "control/tree.h"

namespace mlnet::daemon {

using control::IdPool;
using control::Plan;

namespace {

bool TakeInto(IdPool& pool, uint32_t& id) {
  const auto taken = pool.Take();
  id = taken.value_or(0);
  return taken.has_value();
}

bool TakeThis(IdPool& pool, uint32_t wanted, uint32_t& id) {
  if (wanted == 0 || !pool.TakeThis(wanted)) return false;
  id = wanted;
  return true;
}

}  // namespace

IdPools::IdPools(uint32_t num_slots)
    : slots(num_slots),
      links(MLNET_LINKS_MAX),
      words(1, MLNET_WORDS_MAPS_MAX - 1),
      inboxes(1, MLNET_INBOXES_MAX - 1),
      rings(1, MLNET_RINGS_MAX - 1),
      fans(1, MLNET_FANS_MAX - 1),
      stats(1, MLNET_STATS_MAX - 1) {}

Holding::Holding(std::shared_ptr<IdPools> pools, const Plan& plan)
    : pools_(std::move(pools)), slots_(control::SlotsOf(plan.log2_slots, plan.classes)) {
  ids.trees.resize(plan.trees.size());
  nodes_.resize(plan.trees.size());
}

Holding::~Holding() {
  for (size_t t = 0; t < ids.trees.size(); ++t) {
    const control::TreeIds& tree = ids.trees[t];
    if (nodes_[t].has_slots) pools_->slots.Give(tree.slot_base, slots_);
    if (nodes_[t].num_links > 0) pools_->links.Give(tree.link_base, nodes_[t].num_links);
    for (const uint32_t id : tree.words) {
      if (id != 0) pools_->words.Give(id);
    }
    if (tree.fan != 0) pools_->fans.Give(tree.fan);
    if (tree.stats != 0) pools_->stats.Give(tree.stats);
  }
  for (const uint32_t id : ids.rings) {
    if (id != 0) pools_->rings.Give(id);
  }
  if (ids.inbox != 0) pools_->inboxes.Give(ids.inbox);
  if (ids.server_ring != 0) pools_->rings.Give(ids.server_ring);
  if (ids.server_inbox != 0) pools_->inboxes.Give(ids.server_inbox);
}

const char* Holding::TakeNode(const Plan& plan, size_t t, size_t at) {
  control::TreeIds& tree = ids.trees[t];
  const auto slot_base = pools_->slots.Take(slots_);
  if (!slot_base) return "slots";
  tree.slot_base = *slot_base;
  nodes_[t].has_slots = true;
  const auto num_links = static_cast<uint32_t>(ChildrenOf(plan, t, at).size());
  const auto link_base = pools_->links.Take(num_links);
  if (!link_base) return "link entries";
  tree.link_base = *link_base;
  nodes_[t].num_links = num_links;
  for (uint32_t i = 0; i < NumPools(plan); ++i) {
    if (!TakeInto(pools_->words, tree.words.emplace_back())) return "word maps";
  }
  return TakeInto(pools_->fans, tree.fan) ? nullptr : "fan-out maps";
}

const char* Holding::TakeWorker(size_t num_ranks) {
  if (!TakeInto(pools_->inboxes, ids.inbox)) return "inboxes";
  for (size_t i = 0; i < num_ranks; ++i) {
    if (!TakeInto(pools_->rings, ids.rings.emplace_back())) return "notice rings";
  }
  return nullptr;
}

const char* Holding::TakeServer() {
  if (!TakeInto(pools_->inboxes, ids.server_inbox)) return "inboxes";
  return TakeInto(pools_->rings, ids.server_ring) ? nullptr : "notice rings";
}

const char* Holding::TakeStats(size_t t) { return TakeInto(pools_->stats, ids.trees[t].stats) ? nullptr : "counters"; }

const char* Holding::TakeThisNode(const Plan& plan, size_t t, size_t at, const control::TreeIds& wanted) {
  control::TreeIds& tree = ids.trees[t];
  if (!pools_->slots.TakeThis(wanted.slot_base, slots_)) return "slots";
  tree.slot_base = wanted.slot_base;
  nodes_[t].has_slots = true;
  const auto num_links = static_cast<uint32_t>(ChildrenOf(plan, t, at).size());
  if (!pools_->links.TakeThis(wanted.link_base, num_links)) return "link entries";
  tree.link_base = wanted.link_base;
  nodes_[t].num_links = num_links;
  for (const uint32_t id : wanted.words) {
    if (!TakeThis(pools_->words, id, tree.words.emplace_back())) return "word maps";
  }
  return TakeThis(pools_->fans, wanted.fan, tree.fan) ? nullptr : "fan-out maps";
}

const char* Holding::TakeThese(const Plan& plan, const std::string& host, const control::HostIds& wanted) {
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    const auto at = FindNode(plan, t, host);
    if (!at) continue;
    if (!TakeThis(pools_->stats, wanted.trees[t].stats, ids.trees[t].stats)) return "counters";
    if (!IsSumming(plan, t, *at)) continue;
    if (const char* lacking = TakeThisNode(plan, t, *at, wanted.trees[t])) return lacking;
  }
  const size_t num_ranks = control::LocalRanks(plan, host).size();
  if (num_ranks > 0 && !TakeThis(pools_->inboxes, wanted.inbox, ids.inbox)) return "inboxes";
  for (size_t i = 0; i < num_ranks; ++i) {
    if (i >= wanted.rings.size() || !TakeThis(pools_->rings, wanted.rings[i], ids.rings.emplace_back())) return "notice rings";
  }
  if (plan.server_host != host) return nullptr;
  if (!TakeThis(pools_->inboxes, wanted.server_inbox, ids.server_inbox)) return "inboxes";
  return TakeThis(pools_->rings, wanted.server_ring, ids.server_ring) ? nullptr : "notice rings";
}

}  // namespace mlnet::daemon
