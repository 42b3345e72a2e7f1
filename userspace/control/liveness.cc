// SPDX-License-Identifier: Apache-2.0
#include "control/liveness.h"

#include <algorithm>

#include "control/job.h"
#include "control/plan.h"
#include "control/ring.h"

namespace mlnet::control {
namespace {

constexpr uint64_t kNsPerMs = 1'000'000;
constexpr uint64_t kLooksPerWait = 2;  // fewer in the time of a loss: this host stood still

/// Those that are still in the job and send pings.
std::vector<const MemberRecord*> Pinging(const JobView& view, const std::vector<int>& ranks) {
  std::vector<const MemberRecord*> members;
  for (const MemberRecord& m : view.members) {
    if (m.connected && m.pings && std::find(ranks.begin(), ranks.end(), m.rank) != ranks.end()) members.push_back(&m);
  }
  return members;
}

std::string Names(const std::vector<const MemberRecord*>& members) {
  std::string text;
  for (const MemberRecord* m : members) {
    text += (text.empty() ? "" : ", ") + ("rank " + std::to_string(m->rank)) + " (host " + m->host + ", pid " + std::to_string(m->pid) + ")";
  }
  return text;
}

bool IsOver(uint64_t since_ns, uint64_t now_ns, uint32_t wait_ms) { return now_ns >= since_ns + wait_ms * kNsPerMs; }

std::string SilenceText(uint64_t heard_ns, uint64_t now_ns) { return " for " + std::to_string((now_ns - heard_ns) / kNsPerMs) + " ms"; }

}  // namespace

// `last_ns`: as the kernel has it, 0: never; `heard_ns`: not before the wait began.
bool Liveness::IsSilent(uint64_t last_ns, uint64_t heard_ns, uint64_t now_ns, uint32_t lost_ms) const {
  return IsOver(heard_ns, now_ns, last_ns == 0 ? std::max(lost_ms, kFirstContactMs) : lost_ms);
}

std::optional<Loss> Liveness::LostChild(const JobView& view, const std::string& host, size_t tree, const TreeSigns& signs,
                                        uint64_t now_ns) const {
  const Plan& plan = view.job.plan;
  const auto children = ChildrenOf(plan, tree, *FindNode(plan, tree, host));
  for (const auto& [child, last_ns] : signs.children) {
    const uint64_t heard_ns = std::max(last_ns, since_ns_);
    if (child >= children.size() || !IsSilent(last_ns, heard_ns, now_ns, view.job.spec.lost_ms)) continue;
    const auto lost = Pinging(view, children[child].ranks);
    if (lost.empty()) continue;
    Loss loss{{ErrorCode::kRankLost, "host " + host + " has not heard of " + Names(lost) + SilenceText(heard_ns, now_ns),
               "is the process stopped, the host down or cut off; lost_ms of the job says how long is too long"}, {}};
    for (const MemberRecord* m : lost) loss.ranks.push_back(m->rank);
    const bool is_node = LocalRanks(plan, children[child].host).empty();
    if (is_node) loss.host = children[child].host;
    loss.is_alone = CanLose(view, host) && !HearsOthers(view, children, signs, now_ns);
    return loss;
  }
  return std::nullopt;
}

// Within half the time that makes one silent: those that fell silent with it have not been heard of for about as long.
bool Liveness::HearsOthers(const JobView& view, const std::vector<TreeChild>& children, const TreeSigns& signs, uint64_t now_ns) const {
  return std::any_of(signs.children.begin(), signs.children.end(), [&](const auto& sign) {
    const auto& [child, last_ns] = sign;
    return child < children.size() && !Pinging(view, children[child].ranks).empty() && !IsOver(last_ns, now_ns, view.job.spec.lost_ms / 2);
  });
}

std::optional<Loss> Liveness::LostRoot(const JobView& view, const std::string& host, size_t tree, const TreeSigns& signs,
                                       uint64_t now_ns) const {
  const uint64_t last_ns = signs.answer_ns.value_or(now_ns), heard_ns = std::max({last_ns, since_ns_, asking_since_ns_});
  if (!IsSilent(last_ns, heard_ns, now_ns, view.job.spec.lost_ms) || Pinging(view, LocalRanks(view.job.plan, host)).empty()) return std::nullopt;
  const PlanPort& root = RootOf(view.job.plan, tree);
  return Loss{{ErrorCode::kUnavailable,
               "host " + root.host + ", which sums at " + root.address + ", has not answered host " + host + SilenceText(heard_ns, now_ns),
               "is it down or cut off; mlnetctl status there"}, {}, root.host, true};
}

std::optional<Loss> Liveness::LostStopped(const JobView& view, const Signs& signs, uint64_t now_ns) {
  std::erase_if(stopped_since_ns_, [&](const auto& entry) { return !signs.stopped.contains(entry.first); });
  for (const int rank : signs.stopped) {
    const uint64_t since_ns = stopped_since_ns_.try_emplace(rank, now_ns).first->second;
    const auto lost = Pinging(view, {rank});
    if (lost.empty() || !IsOver(since_ns, now_ns, view.job.spec.lost_ms)) continue;
    return Loss{{ErrorCode::kRankLost, Names(lost) + " has been stopped" + SilenceText(since_ns, now_ns),
                 "by a signal or a debugger; lost_ms of the job says how long is too long"}, {rank}};
  }
  return std::nullopt;
}

std::optional<Loss> Liveness::Look(const JobView& view, const std::string& host, const Signs& signs, uint64_t now_ns) {
  const uint64_t wait_ns = view.job.spec.lost_ms * kNsPerMs;
  if (now_ns - looked_ns_ > wait_ns / kLooksPerWait) {
    since_ns_ = now_ns;
    stopped_since_ns_.clear();
  }
  looked_ns_ = now_ns;
  if (wait_ns == 0) return std::nullopt;
  if (auto loss = LostStopped(view, signs, now_ns)) return loss;
  if (signs.stopped.size() == LocalRanks(view.job.plan, host).size()) asking_since_ns_ = now_ns;
  for (size_t t = 0; t < signs.trees.size(); ++t) {
    // The root first: a host that is cut off hears of nobody, and should not blame them all.
    if (auto loss = LostRoot(view, host, t, signs.trees[t], now_ns)) return loss;
    if (signs.trees[t].children.empty()) continue;
    if (auto loss = LostChild(view, host, t, signs.trees[t], now_ns)) return loss;
  }
  return std::nullopt;
}

}  // namespace mlnet::control
