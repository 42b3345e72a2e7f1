// SPDX-License-Identifier: Apache-2.0
#include "daemon/local_jobs.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "control/plan.h"
#include "control/tree.h"
#include "daemon/job_key.h"
#include "daemon/levels.h"
#include "datapath/neighbour.h"
#include "datapath/stats.h"
#include "wire/verdicts.h"

namespace mlnet::daemon {

using control::HostIds;
using control::Json;
using control::Plan;

LocalJobs::LocalJobs(const datapath::Program& program, const Ifaces& ifaces, std::string host)
    : program_(program), ifaces_(ifaces), host_(std::move(host)), pools_(std::make_shared<IdPools>(program.config().slots)) {}

Result<std::shared_ptr<Holding>> LocalJobs::Take(const Plan& plan) const {
  auto holding = std::make_shared<Holding>(pools_, plan);
  const size_t num_ranks = control::LocalRanks(plan, host_).size();
  const char* lacking = nullptr;
  for (size_t t = 0; t < plan.trees.size() && lacking == nullptr; ++t) {
    const auto at = FindNode(plan, t, host_);
    if (!at) continue;
    lacking = holding->TakeStats(t);
    if (lacking == nullptr && IsSumming(plan, t, *at)) lacking = holding->TakeNode(plan, t, *at);
  }
  if (lacking == nullptr && num_ranks > 0) lacking = holding->TakeWorker(num_ranks);
  if (lacking == nullptr && plan.server_host == host_) lacking = holding->TakeServer();
  if (lacking != nullptr) {
    return Err(ErrorCode::kUnavailable, "host " + host_ + " has no " + lacking + " left", "end other jobs, or use fewer slots");
  }
  return holding;
}

std::vector<mlnet_node> LocalJobs::Nodes(const LocalJob& job) const {
  const Plan& plan = job.plan;
  std::vector<mlnet_node> nodes;
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    control::HostMacs macs;
    if (const auto* port = PortOfHost(plan, t, host_)) macs.nic = ifaces_.MacOf(port->iface);
    if (IsInner(plan, t, host_)) macs.up = datapath::NextHopMac(AddressAbove(plan, t)).value_or(control::Mac{});
    mlnet_node& node = nodes.emplace_back(MakeNode(plan, t, host_, job.holding->ids, macs, job.is_multicast));
    std::copy(job.marks.begin(), job.marks.end(), node.marks);
    node.uid = job.uid;
    if (job.key && node.flags != 0) node.flags |= MLNET_NODE_MAC;
    if (job.is_traced && node.flags != 0) node.flags |= MLNET_NODE_TRACE;
  }
  return nodes;
}

// Of the node above this host's (inner).
std::string LocalJobs::AddressAbove(const Plan& plan, size_t tree) const {
  return PortOf(plan, tree, NodeAbove(plan, tree, FindNode(plan, tree, host_).value())).address;
}

std::vector<std::string> LocalJobs::UnknownHops(const Plan& plan) const {
  std::set<std::string> unknown;
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    if (IsInner(plan, t, host_) && !datapath::NextHopMac(AddressAbove(plan, t))) unknown.insert(AddressAbove(plan, t));
  }
  return {unknown.begin(), unknown.end()};
}

void LocalJobs::RefreshHops() {
  for (auto& [name, job] : jobs_) {
    std::vector<mlnet_node> nodes = Nodes(job);
    bool has_changed = false;
    for (size_t t = 0; t < nodes.size(); ++t) {
      constexpr control::Mac kUnknown{};
      const mlnet_node& now = job.kernel->node(t);
      if (std::equal(kUnknown.begin(), kUnknown.end(), nodes[t].up_mac)) std::copy_n(now.up_mac, 6, nodes[t].up_mac);
      has_changed |= !std::equal(now.up_mac, now.up_mac + 6, nodes[t].up_mac);
    }
    if (!has_changed) continue;
    if (auto ok = job.kernel->SetNodes(std::move(nodes)); !ok) spdlog::warn("job {}: {}", name, ok.error().ToString());
  }
}

datapath::HostJobSpec LocalJobs::SpecOf(const LocalJob& job) const {
  const Plan& plan = job.plan;
  const HostIds& ids = job.holding->ids;
  datapath::HostJobSpec spec;
  spec.job_id = plan.job_id;
  spec.inbox_id = ids.inbox;
  spec.inbox_cells = InboxCells(plan);
  spec.ring_ids = ids.rings;
  spec.server_inbox_id = ids.server_inbox;
  spec.server_ring_id = ids.server_ring;
  spec.epoch = plan.epoch;
  spec.key = job.key;
  const auto nodes = Nodes(job);
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    const control::TreeIds& of = ids.trees[t];
    datapath::HostTreeSpec tree;
    tree.node = nodes[t];
    tree.slot_base = of.slot_base;
    tree.num_slots = control::SlotsOf(plan.log2_slots, plan.classes);
    for (size_t i = 0; i < of.words.size(); ++i) {
      const control::PoolSize pool = control::PoolOf(plan, static_cast<uint32_t>(i));
      tree.words.push_back({of.words[i], 2u << pool.log2_slots, pool.class_stream, MLNET_CLASS(pool.class_stream) != 0});
    }
    if (const auto* port = PortOfHost(plan, t, host_)) tree.fan_ifindex = ifaces_.Ifindex(port->iface);
    spec.trees.push_back(std::move(tree));
  }
  return spec;
}

// Where results of other roots come in.
std::set<std::string> LocalJobs::IfacesOfResults(const Plan& plan) const {
  std::set<std::string> ifaces;
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    const auto at = FindNode(plan, t, host_);
    if (at && *at != 0) ifaces.insert(PortOf(plan, t, *at).iface);
  }
  return ifaces;
}

LocalJob LocalJobs::Begin(const control::JobView& view, std::shared_ptr<Holding> holding) const {
  LocalJob job;
  job.incarnation = view.job.incarnation;
  job.plan = view.job.plan;
  job.ranks = control::LocalRanks(job.plan, host_);
  job.key = KeyOf(view);
  job.holding = std::move(holding);
  job.answered_ns.resize(job.plan.trees.size());
  job.num_answers.resize(job.plan.trees.size());
  return job;
}

void LocalJobs::JoinGroup(const control::JobView& view, LocalJob& job) const {
  if (view.job.spec.multicast == "off") return;
  for (const std::string& iface : IfacesOfResults(job.plan)) {
    auto membership = Membership::Take(job.plan.group, ifaces_.Ifindex(iface));
    // Not fatal: the probe will not arrive here, and the job uses copies.
    if (membership) job.memberships.push_back(std::move(*membership));
    else spdlog::warn("job {}: {}", view.job.name, membership.error().ToString());
  }
}

Result<void> LocalJobs::Install(const control::JobView& view, const control::Marks& marks, uint32_t uid) {
  const Plan& plan = view.job.plan;
  auto holding = Take(plan);
  if (!holding) return tl::make_unexpected(holding.error());
  LocalJob job = Begin(view, std::move(*holding));
  job.marks = marks;
  job.uid = uid;
  auto kernel = datapath::HostJob::Install(program_, SpecOf(job));
  if (!kernel) return tl::make_unexpected(kernel.error());
  job.kernel = std::make_unique<datapath::HostJob>(std::move(*kernel));
  JoinGroup(view, job);
  spdlog::info("job {}: installed, id {}, epoch {}{}{}", view.job.name, plan.job_id, plan.epoch,
               IsRootOfAny(plan, host_) ? ", sums here" : "", job.ranks.empty() ? "" : ", ranks " + std::to_string(job.ranks.size()));
  jobs_[view.job.name] = std::move(job);
  return {};
}

void LocalJobs::Uninstall(const std::string& name) {
  const auto it = jobs_.find(name);
  if (it == jobs_.end()) return;
  datapath::AddStats(retired_, StatsOf(it->second));
  spdlog::info("job {}: removed", name);
  jobs_.erase(it);
}

mlnet_stats LocalJobs::StatsOf(const LocalJob& job) const {
  mlnet_stats sum{};
  for (const control::TreeIds& tree : job.holding->ids.trees) {
    if (tree.stats == 0) continue;
    if (const auto stats = datapath::ReadStats(program_, tree.stats)) datapath::AddStats(sum, *stats);
  }
  return sum;
}

LocalJob* LocalJobs::Find(const std::string& name) {
  const auto it = jobs_.find(name);
  return it == jobs_.end() ? nullptr : &it->second;
}

void LocalJobs::OpenPool(const std::string& name, LocalJob& job, size_t tree, uint8_t class_stream) const {
  const auto opened = job.kernel->OpenPool(program_, tree, class_stream);
  if (!opened) spdlog::error("job {}: {}", name, opened.error().ToString());
  else if (*opened) spdlog::info("job {}: tree {}, words for class {}", name, tree, MLNET_CLASS(class_stream));
}

Result<void> LocalJobs::UseMulticast(LocalJob& job) {
  job.is_multicast = true;
  return job.kernel->SetNodes(Nodes(job));
}

// Not Nodes(): the entry may know a link address above that the kernel has forgotten since.
Result<void> LocalJobs::SetTracing(LocalJob& job, bool is_on) {
  job.is_traced = is_on;
  std::vector<mlnet_node> nodes;
  for (size_t t = 0; t < job.plan.trees.size(); ++t) {
    mlnet_node& node = nodes.emplace_back(job.kernel->node(t));
    if (node.flags == 0) continue;  // it does nothing in this tree
    is_on ? node.flags |= MLNET_NODE_TRACE : node.flags &= static_cast<uint8_t>(~MLNET_NODE_TRACE);
  }
  return job.kernel->SetNodes(std::move(nodes));
}

void LocalJobs::Mark(const std::string& name, const control::Marks& marks) {
  LocalJob* job = Find(name);
  if (job == nullptr || control::IsSame(job->marks, marks)) return;
  job->marks = marks;
  std::vector<mlnet_node> nodes;
  for (size_t t = 0; t < job->plan.trees.size(); ++t) {
    std::copy(marks.begin(), marks.end(), nodes.emplace_back(job->kernel->node(t)).marks);
  }
  if (auto ok = job->kernel->SetNodes(std::move(nodes)); !ok) spdlog::error("job {}: {}", name, ok.error().ToString());
}

// Answers to pings show that the root lives; so do results and replies, since a bad link loses many pings. But a reply has
// nothing that a later one must exceed: where tags keep others out, those could repeat it, and it counts only for want of answers.
// And it is the root's only right below the root: other nodes say by themselves that a sum is held which they have passed on.
void LocalJobs::NoteAnswers(LocalJob& job, size_t tree, size_t node, uint64_t now_ns) const {
  const auto stats = datapath::ReadStats(program_, job.holding->ids.trees[tree].stats);
  if (!stats) return;
  const uint64_t num_pongs = stats->verdicts[MLNET_V_PONG_SEEN] + stats->verdicts[MLNET_V_PONG_DOWN_TX];
  uint64_t num_answers = num_pongs + stats->verdicts[MLNET_V_DELIVERED];
  if (job.plan.trees[tree].nodes[node].parent == 0 && (!job.key || num_pongs == 0)) {
    num_answers += stats->verdicts[IsSumming(job.plan, tree, node) ? MLNET_V_NOTICE_DOWN : MLNET_V_NOTICE];
  }
  if (num_answers != job.num_answers[tree].value_or(0)) job.answered_ns[tree] = now_ns;
  job.num_answers[tree] = num_answers;
}

std::vector<control::TreeSigns> LocalJobs::Signs(LocalJob& job, uint64_t now_ns) const {
  std::vector<control::TreeSigns> trees(job.plan.trees.size());
  for (size_t t = 0; t < trees.size(); ++t) {
    const auto node = FindNode(job.plan, t, host_);
    if (!node) continue;
    if (!job.ranks.empty() && *node != 0) {
      NoteAnswers(job, t, *node, now_ns);
      trees[t].answer_ns = job.answered_ns[t];
    }
    if (!IsSumming(job.plan, t, *node)) continue;
    const control::TreeIds& ids = job.holding->ids.trees[t];
    for (size_t child = 0; child < ChildrenOf(job.plan, t, *node).size(); ++child) {
      const auto link = datapath::ReadLink(program_, ids.link_base + static_cast<uint32_t>(child));
      if (link) trees[t].children[child] = link->last_ns;
    }
  }
  return trees;
}

uint32_t LocalJobs::SlotsFree() const { return pools_->slots.LongestFree(); }

// Of this host's node in one tree; null where it sums nothing.
Json LocalJobs::TreeCounters(const LocalJob& job, size_t tree) const {
  const auto node = FindNode(job.plan, tree, host_);
  const control::TreeIds& ids = job.holding->ids.trees[tree];
  if (!node || ids.stats == 0 || !IsSumming(job.plan, tree, *node)) return nullptr;
  std::vector<mlnet_link> links(ChildrenOf(job.plan, tree, *node).size());
  for (size_t child = 0; child < links.size(); ++child) {
    links[child] = datapath::ReadLink(program_, ids.link_base + static_cast<uint32_t>(child)).value_or(mlnet_link{});
  }
  return NodeCounters(tree, IsInner(job.plan, tree, host_), datapath::ReadStats(program_, ids.stats).value_or(mlnet_stats{}), links);
}

Json LocalJobs::Counters(const LocalJob& job) const {
  Json counters = StatsToJson(StatsOf(job));
  counters["trees"] = Json::array();
  for (size_t t = 0; t < job.plan.trees.size(); ++t) {
    if (Json row = TreeCounters(job, t); !row.is_null()) counters["trees"].push_back(std::move(row));
  }
  return counters;
}

mlnet_stats LocalJobs::Total() const {
  mlnet_stats total = datapath::ReadStats(program_, 0).value_or(mlnet_stats{});
  datapath::AddStats(total, retired_);
  for (const auto& [name, job] : jobs_) datapath::AddStats(total, StatsOf(job));
  return total;
}

Json StatsToJson(const mlnet_stats& stats) {
  Json verdicts = Json::object();
  for (unsigned v = 0; v < MLNET_V_COUNT; ++v) {
    const wire::VerdictInfo& info = wire::VerdictOf(v);
    verdicts[info.name] = {{"count", stats.verdicts[v]}, {"action", info.action}, {"help", info.help}};
  }
  return {{"verdicts", verdicts},
          {"bytes_in", stats.bytes_in},
          {"contributions", stats.contributions},
          {"words_summed", stats.words_summed},
          {"results", stats.results}};
}

}  // namespace mlnet::daemon
