// SPDX-License-Identifier: Apache-2.0
// Jobs that an earlier daemon of this host has left in the kernel, where packets of theirs may be flowing.
#include <spdlog/spdlog.h>

#include "control/plan.h"
#include "control/tree.h"
#include "daemon/local_jobs.h"
#include "datapath/leftovers.h"

namespace mlnet::daemon {

using control::Plan;

Result<std::shared_ptr<Holding>> LocalJobs::TakeThese(const Plan& plan, const control::HostIds& ids) const {
  auto holding = std::make_shared<Holding>(pools_, plan);
  const char* lacking = holding->TakeThese(plan, host_, ids);
  if (lacking == nullptr) return holding;
  return Err(ErrorCode::kConflict, std::string("its table entry names ") + lacking + " that it cannot have");
}

// The table entry says which ids the job has; that it is the plan's says that they are what they should be.
Result<void> LocalJobs::TakeOver(const control::JobView& view) {
  const Plan& plan = view.job.plan;
  if (plan.port != program_.config().port) {
    return Err(ErrorCode::kConflict, "it uses port " + std::to_string(plan.port) + ", this mlnetd " + std::to_string(program_.config().port));
  }
  auto there = datapath::HostJob::ReadEntry(program_, plan.job_id, plan.trees.size());
  if (!there) return tl::make_unexpected(there.error());
  auto holding = TakeThese(plan, control::IdsIn(plan, host_, *there));
  if (!holding) return tl::make_unexpected(holding.error());
  LocalJob job = Begin(view, std::move(*holding));
  job.is_multicast = view.job.fan == "multicast" && IsRootOfAny(plan, host_);
  std::copy(std::begin(there->front().marks), std::end(there->front().marks), job.marks.begin());
  job.uid = there->front().uid;
  auto spec = SpecOf(job);
  for (size_t t = 0; t < spec.trees.size(); ++t) {
    if (!control::IsSameNode((*there)[t], spec.trees[t].node)) {
      return Err(ErrorCode::kConflict, "its table entry is not what its plan makes of tree " + std::to_string(t));
    }
    spec.trees[t].node = (*there)[t];
    job.is_traced = job.is_traced || ((*there)[t].flags & MLNET_NODE_TRACE) != 0;
  }
  auto kernel = datapath::HostJob::TakeOver(program_, spec);
  if (!kernel) return tl::make_unexpected(kernel.error());
  job.kernel = std::make_unique<datapath::HostJob>(std::move(*kernel));
  JoinGroup(view, job);
  spdlog::info("job {}: taken over, id {}, epoch {}", view.job.name, plan.job_id, plan.epoch);
  LocalJob& taken = jobs_[view.job.name] = std::move(job);
  // Who looked at its timeline looked by the earlier daemon.
  return taken.is_traced ? SetTracing(taken, false) : Result<void>{};
}

void LocalJobs::RemoveLeftovers() {
  datapath::KeysInUse in_use;
  for (const auto& [name, job] : jobs_) {
    const control::HostIds& ids = job.holding->ids;
    in_use.jobs.insert(job.plan.job_id);
    if (job.key) in_use.keys.insert(MLNET_KEY_ID(job.plan.job_id, job.plan.epoch));
    in_use.inboxes.insert({ids.inbox, ids.server_inbox});
    in_use.rings.insert(ids.rings.begin(), ids.rings.end());
    in_use.rings.insert(ids.server_ring);
    for (const control::TreeIds& tree : ids.trees) {
      in_use.words.insert(tree.words.begin(), tree.words.end());
      in_use.fans.insert(tree.fan);
    }
  }
  if (const size_t num_removed = RemoveOthers(program_, in_use); num_removed > 0) {
    spdlog::info("removed {} places of the maps that an earlier mlnetd had filled for no job that runs", num_removed);
  }
}

}  // namespace mlnet::daemon
