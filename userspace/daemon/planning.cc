// SPDX-License-Identifier: Apache-2.0
// A job that has all its ranks gets its plan: also one that goes on with the ranks that are left.
#include <spdlog/spdlog.h>

#include "control/job.h"
#include "control/plan.h"
#include "control/ring.h"
#include "control/shrink.h"
#include "daemon/daemon.h"
#include "daemon/job_key.h"

namespace mlnet::daemon {

using control::JobView;

namespace {

constexpr uint64_t kRemoveMs = 1000;  // after a job's end some hosts may not have removed it, and have not its slots yet

}  // namespace

bool Daemon::PlanIfFull(const JobView& view) {
  if ((!IsFull(view) && !CanShrink(view)) || !CanJudgeHosts()) return false;
  auto fresh = store_->LoadOpen({});  // for the heartbeats
  if (!fresh) return false;
  auto done = store_->UpdateJob(view.job.name, [&](std::optional<JobView>& v) -> Result<void> {
    const auto before = v;
    if (v && CanShrink(*v)) Shrink(*v, NowMs());
    if (!v || !IsFull(*v)) return {};
    const control::PlanInput input{&*v, &fresh->hosts, &fresh->jobs, config_.addressing, NowMs()};
    auto plan = control::MakePlan(input);
    auto numbers = plan ? store_->TakeNumbers(v->job.job_id) : tl::make_unexpected(plan.error());
    auto key = numbers ? MakeJobKey(v->job.spec) : tl::make_unexpected(numbers.error());
    if (!key && HasEnded(before->job) && NowMs() < before->job.failed_ms + kRemoveMs) {
      v = before;
      return {};
    }
    if (!plan && !CouldBeSummed(input) && StartRing(*v, input, plan.error().message)) return {};
    if (!key) {
      spdlog::warn("job {} failed: {}", v->job.name, key.error().ToString());
      Fail(*v, key.error(), {}, NowMs());
      return {};
    }
    control::Number(*plan, *numbers, config_.addressing);
    v->job.plan = *plan;
    v->job.key = *key;
    v->job.job_id = numbers->job_id;
    v->job.state = control::kPreparing;
    v->job.planned_ms = NowMs();
    v->job.reason.clear();
    spdlog::info("job {}: {} ranks, summed by {}: {}", v->job.name, v->job.world_size, NamesOfAggregators(*plan), plan->why);
    return {};
  });
  if (!done) WarnOfStore("job " + view.job.name + ": ", done.error());
  return done.has_value();
}

// Where the ranks can sum by themselves and nobody else can. REQUIRES: within a Change.
bool Daemon::StartRing(JobView& view, const control::PlanInput& input, const std::string& why) {
  const std::string token = NewRingToken();
  if (!MayStartInRing(view) || token.empty()) return false;
  auto plan = control::MakeRingPlan(input);
  auto numbers = plan ? store_->TakeNumbers(view.job.job_id) : tl::make_unexpected(plan.error());
  auto key = numbers ? MakeJobKey(view.job.spec) : tl::make_unexpected(numbers.error());
  if (!key) return false;
  control::Number(*plan, *numbers, config_.addressing);
  plan->why = why;
  view.job.key = *key;
  view.job.reason.clear();
  control::StartInRing(view, *plan, why, token, NowMs());
  spdlog::warn("job {}: {} ranks begin in user space, in a ring: {}", view.job.name, view.job.world_size, why);
  return true;
}

// Instead of a plan whose aggregators do not come.
bool Daemon::PlanRing(const JobView& view, const std::string& why) {
  auto fresh = store_->LoadOpen({});
  if (!fresh) return false;
  return Change(view.job.name, view.job.incarnation, [&](JobView& v) {
    if (v.job.state != control::kPreparing || v.job.plan.epoch != view.job.plan.epoch) return;
    const Error error{ErrorCode::kUnavailable, why, "see mlnetd's log there"};
    if (!StartRing(v, {&v, &fresh->hosts, &fresh->jobs, config_.addressing, NowMs()}, why)) Fail(v, error, {}, NowMs());
  });
}

}  // namespace mlnet::daemon
