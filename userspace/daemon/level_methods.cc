// SPDX-License-Identifier: Apache-2.0
// What operators ask of running jobs: a job's trees level by level, and what all jobs do at the moment.
#include "control/job.h"
#include "daemon/daemon.h"
#include "daemon/levels.h"

namespace mlnet::daemon {

using control::Json;
using control::JobView;

Result<Json> Daemon::JobLevels(const Json& params) {
  auto name = rpc::Get<std::string>(params, "name");
  auto only = rpc::Find<size_t>(params, "tree");
  if (!name) return tl::make_unexpected(name.error());
  if (!only) return tl::make_unexpected(only.error());
  auto view = FreshJob(*name);
  if (!view) return tl::make_unexpected(view.error());
  const size_t num_trees = (*view)->job.plan.trees.size();
  if (*only && **only >= num_trees) {
    return Err(ErrorCode::kInvalidArgument, "job '" + *name + "' has no tree " + std::to_string(**only),
               "it has " + std::to_string(num_trees) + ", counted from 0");
  }
  return LevelsOf(**view, CountersOf({*view})[0], *only);
}

Result<Json> Daemon::Top(const Json& params) {
  auto all = rpc::GetOr<bool>(params, "all", false);
  if (!all) return tl::make_unexpected(all.error());
  Flush();
  std::vector<const JobView*> views;
  for (const JobView& view : snapshot_.jobs) {
    if (!view.job.deleted && (*all || !HasEnded(view.job))) views.push_back(&view);
  }
  const auto counters = CountersOf(views);
  Json jobs = Json::array();
  for (size_t i = 0; i < views.size(); ++i) jobs.push_back(ActivityOf(*views[i], counters[i]));
  return Json{{"schema", "mlnet.top/1"}, {"host", config_.host}, {"time_ms", NowMs()}, {"jobs", std::move(jobs)}};
}

}  // namespace mlnet::daemon
