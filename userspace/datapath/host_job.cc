// SPDX-License-Identifier: Apache-2.0
#include "datapath/host_job.h"

#include <bpf/bpf.h>

#include <algorithm>
#include <cerrno>

#include "base/errno_error.h"
#include "datapath/stats.h"

namespace mlnet::datapath {
namespace {

Result<Fd> CreateEntry(const std::vector<mlnet_node>& nodes) {
  auto inner = CreateArray("ml_job", sizeof(mlnet_node), MLNET_TREES_MAX, false, false);
  if (!inner) return inner;
  for (uint32_t tree = 0; tree < nodes.size(); ++tree) {
    if (auto ok = UpdateMap(inner->get(), "job entry", tree, &nodes[tree]); !ok) return tl::make_unexpected(ok.error());
  }
  return inner;
}

template <typename Created>
Result<void> FillPlace(Place& place, const OuterMap& outer, uint32_t key, Created created) {
  if (!created) return tl::make_unexpected(created.error());
  auto filled = Place::Fill(outer, key, std::move(*created));
  if (!filled) return tl::make_unexpected(filled.error());
  place = std::move(*filled);
  return {};
}

// A slot remembers the epoch of the job that had it before, and epochs are counted per job.
Result<void> ClearSlots(const Program& program, uint32_t base, uint32_t count) {
  const mlnet_slot empty{};
  for (uint32_t i = 0; i < count; ++i) {
    if (auto ok = UpdateMap(program.MapFd("ml_slots"), "ml_slots", base + i, &empty); !ok) return ok;
  }
  return {};
}

Result<void> ClearLinks(const Program& program, uint32_t base, uint32_t count) {
  const mlnet_link unknown{};
  for (uint32_t i = 0; i < count; ++i) {
    if (auto ok = UpdateMap(program.MapFd("ml_links"), "ml_links", base + i, &unknown); !ok) return ok;
  }
  return {};
}

// An entry that was there is replaced in one step.
Result<void> PointFan(const Program& program, int devmap, int ifindex, uint32_t copies) {
  bpf_devmap_val port{};
  port.ifindex = static_cast<uint32_t>(ifindex);
  port.bpf_prog.fd = program.egress_fd();
  for (uint32_t k = 0; k < copies; ++k) {
    if (auto ok = UpdateMap(devmap, "ml_fans", k, &port); !ok) return ok;
  }
  return {};
}

uint32_t CopiesOf(const HostTreeSpec& spec) { return std::max<uint32_t>(1, spec.node.n_fan); }

Result<Fd> CreateFan(const Program& program, const HostTreeSpec& spec) {
  auto devmap = CreateDevmap("ml_fan", CopiesOf(spec));
  if (!devmap) return devmap;
  if (auto ok = PointFan(program, devmap->get(), spec.fan_ifindex, CopiesOf(spec)); !ok) return tl::make_unexpected(ok.error());
  return devmap;
}

// Programs may write it from here on, processes only read: it is handed to unprivileged ranks.
Result<Fd> CreateInbox(uint32_t cells) {
  auto inbox = CreateArray("ml_inbox", sizeof(mlnet_cell), cells, true, true);
  if (inbox && bpf_map_freeze(inbox->get()) != 0) return tl::make_unexpected(ErrnoError("freeze the inbox", errno));
  return inbox;
}

Result<void> TakePlace(Place& place, const Program& program, const char* map, uint32_t key, const InnerShape& shape) {
  auto taken = Place::TakeOver(program.Outer(map), key, shape);
  if (!taken) return tl::make_unexpected(taken.error());
  place = std::move(*taken);
  return {};
}

}  // namespace

Result<HostJob> HostJob::Install(const Program& program, const HostJobSpec& spec) {
  HostJob job;
  for (const HostTreeSpec& tree : spec.trees) {
    job.nodes_.push_back(tree.node);
    job.unopened_.emplace_back();
    if (tree.node.flags == 0) continue;
    if (auto ok = ClearStats(program, tree.node.stats_id); !ok) return tl::make_unexpected(ok.error());
    if ((tree.node.flags & MLNET_NODE_AGGREGATE) == 0) continue;
    if (auto ok = job.InstallAggregator(program, tree); !ok) return tl::make_unexpected(ok.error());
  }
  if (spec.inbox_id != 0) {
    auto ok = InstallReaders(program, spec.inbox_id, spec.inbox_cells, spec.ring_ids, job.ranks_);
    if (!ok) return tl::make_unexpected(ok.error());
  }
  if (spec.server_inbox_id != 0) {
    auto ok = InstallReaders(program, spec.server_inbox_id, spec.inbox_cells, {spec.server_ring_id}, job.server_);
    if (!ok) return tl::make_unexpected(ok.error());
  }
  if (auto ok = job.PutKey(program, spec); !ok) return tl::make_unexpected(ok.error());
  auto ok = FillPlace(job.entry_, program.Outer("ml_jobs"), spec.job_id, CreateEntry(job.nodes_));
  if (!ok) return tl::make_unexpected(ok.error());
  return job;
}

// The same bytes where they are in place already: they follow from the job's record.
Result<void> HostJob::PutKey(const Program& program, const HostJobSpec& spec) {
  if (!spec.key) return {};
  auto key = KeyEntry::Put(program, MLNET_KEY_ID(spec.job_id, spec.epoch), *spec.key);
  if (!key) return tl::make_unexpected(key.error());
  key_ = std::move(*key);
  return {};
}

Result<void> HostJob::InstallAggregator(const Program& program, const HostTreeSpec& spec) {
  if (auto ok = ClearSlots(program, spec.slot_base, spec.num_slots); !ok) return ok;
  if (auto ok = ClearLinks(program, spec.node.link_base, spec.node.n_children); !ok) return ok;
  for (const HostTreeSpec::WordsMap& words : spec.words) {
    if (words.is_lazy) unopened_.back().push_back(words);
    else if (auto ok = FillWords(program, words); !ok) return ok;
  }
  if (spec.node.fan_id == 0) return {};
  return FillPlace(fans_.emplace_back(), program.Outer("ml_fans"), spec.node.fan_id, CreateFan(program, spec));
}

Result<void> HostJob::FillWords(const Program& program, const HostTreeSpec::WordsMap& words) {
  auto created = CreateArray("ml_words", sizeof(mlnet_words), words.entries, true, true);
  return FillPlace(words_.emplace_back(), program.Outer("ml_words"), words.id, std::move(created));
}

Result<bool> HostJob::OpenPool(const Program& program, size_t tree, uint8_t class_stream) {
  if (tree >= unopened_.size()) return false;
  auto& pools = unopened_[tree];
  const auto pool = std::find_if(pools.begin(), pools.end(), [&](const auto& p) { return p.class_stream == class_stream; });
  if (pool == pools.end()) return false;
  if (auto ok = FillWords(program, *pool); !ok) return tl::make_unexpected(ok.error());
  pools.erase(pool);
  return true;
}

Result<void> HostJob::InstallReaders(const Program& program, uint32_t inbox_id, uint32_t cells,
                                     const std::vector<uint32_t>& ring_ids, Readers& readers) {
  auto ok = FillPlace(readers.inbox, program.Outer("ml_inboxes"), inbox_id, CreateInbox(cells));
  if (!ok) return ok;
  auto wake = CreateArray("ml_wake", sizeof(mlnet_wake), 1, true, false);
  ok = FillPlace(readers.wake, program.Outer("ml_wakes"), inbox_id, std::move(wake));
  if (!ok) return ok;
  for (const uint32_t ring_id : ring_ids) {
    auto ring = CreateRing("ml_ring", MLNET_NOTICE_RING_BYTES);
    ok = FillPlace(readers.rings.emplace_back(), program.Outer("ml_rings"), ring_id, std::move(ring));
    if (!ok) return ok;
  }
  return {};
}

Result<std::vector<mlnet_node>> HostJob::ReadEntry(const Program& program, uint16_t job_id, size_t num_trees) {
  auto entry = OpenInner(program.Outer("ml_jobs"), job_id);
  if (!entry) return tl::make_unexpected(entry.error());
  std::vector<mlnet_node> nodes(num_trees);
  for (uint32_t tree = 0; tree < num_trees; ++tree) {
    if (bpf_map_lookup_elem(entry->get(), &tree, &nodes[tree]) != 0) return tl::make_unexpected(ErrnoError("read ml_jobs", errno));
  }
  return nodes;
}

Result<HostJob> HostJob::TakeOver(const Program& program, const HostJobSpec& spec) {
  HostJob job;
  auto ok = TakePlace(job.entry_, program, "ml_jobs", spec.job_id, {sizeof(mlnet_node), MLNET_TREES_MAX});
  for (const HostTreeSpec& tree : spec.trees) {
    job.nodes_.push_back(tree.node);
    job.unopened_.emplace_back();
    if (ok && (tree.node.flags & MLNET_NODE_AGGREGATE) != 0) ok = job.TakeOverAggregator(program, tree);
  }
  if (ok && spec.inbox_id != 0) ok = TakeOverReaders(program, spec.inbox_id, spec.inbox_cells, spec.ring_ids, job.ranks_);
  if (ok && spec.server_inbox_id != 0) {
    ok = TakeOverReaders(program, spec.server_inbox_id, spec.inbox_cells, {spec.server_ring_id}, job.server_);
  }
  if (ok) ok = job.PutKey(program, spec);
  if (!ok) return tl::make_unexpected(ok.error());
  return job;
}

Result<void> HostJob::TakeOverAggregator(const Program& program, const HostTreeSpec& spec) {
  for (const HostTreeSpec::WordsMap& words : spec.words) {
    Place place;
    const auto ok = TakePlace(place, program, "ml_words", words.id, {sizeof(mlnet_words), words.entries});
    if (ok) words_.push_back(std::move(place));
    else if (words.is_lazy && ok.error().code == ErrorCode::kUnavailable) unopened_.back().push_back(words);
    else return ok;
  }
  if (spec.node.fan_id == 0) return {};
  Place& fan = fans_.emplace_back();
  auto ok = TakePlace(fan, program, "ml_fans", spec.node.fan_id, {sizeof(bpf_devmap_val), CopiesOf(spec)});
  return ok ? PointFan(program, fan.inner_fd(), spec.fan_ifindex, CopiesOf(spec)) : ok;
}

Result<void> HostJob::TakeOverReaders(const Program& program, uint32_t inbox_id, uint32_t cells,
                                      const std::vector<uint32_t>& ring_ids, Readers& readers) {
  auto ok = TakePlace(readers.inbox, program, "ml_inboxes", inbox_id, {sizeof(mlnet_cell), cells});
  if (ok) ok = TakePlace(readers.wake, program, "ml_wakes", inbox_id, {sizeof(mlnet_wake), 1});
  for (const uint32_t ring_id : ring_ids) {
    if (ok) ok = TakePlace(readers.rings.emplace_back(), program, "ml_rings", ring_id, {0, MLNET_NOTICE_RING_BYTES});
  }
  return ok;
}

Result<void> HostJob::SetNodes(std::vector<mlnet_node> nodes) {
  auto inner = CreateEntry(nodes);
  if (!inner) return tl::make_unexpected(inner.error());
  if (auto ok = entry_.Swap(std::move(*inner)); !ok) return ok;
  nodes_ = std::move(nodes);
  return {};
}

}  // namespace mlnet::datapath
