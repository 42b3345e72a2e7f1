// SPDX-License-Identifier: Apache-2.0
#include "control/quota.h"

#include "control/plan.h"
#include "control/tree.h"

namespace mlnet::control {
namespace {

constexpr const char* kRaise = ", or raise the quota in mlnetd.toml there";

std::string What(const char* key, uint32_t limit, const std::string& host) {
  return std::string(key) + " = " + std::to_string(limit) + " in [quota] of host " + host;
}

}  // namespace

Result<void> CheckJobQuota(const Quota& quota, const std::string& host, const Holder& wanted, const std::vector<Holder>& holders) {
  if (quota.jobs_per_user == 0) return {};
  uint32_t num_jobs = 0;
  std::string names;
  for (const Holder& holder : holders) {
    if (holder.uid != wanted.uid || holder.job == wanted.job) continue;
    ++num_jobs;
    names += (names.empty() ? "" : ", ") + holder.job;
  }
  if (num_jobs < quota.jobs_per_user) return {};
  return Err(ErrorCode::kPermission,
             "job '" + wanted.job + "': user " + std::to_string(wanted.uid) + " has " + std::to_string(num_jobs) +
                 " jobs there already (" + names + "), " + What("jobs_per_user", quota.jobs_per_user, host),
             "end one of them" + std::string(kRaise));
}

Result<void> CheckSlotQuota(const Quota& quota, const std::string& host, const Holder& wanted, const std::vector<Holder>& holders) {
  const std::string needs = "job '" + wanted.job + "' needs " + std::to_string(wanted.slots) + " slots, ";
  const std::string fewer = "give it fewer: mlnetctl job create --slots, --classes";
  if (quota.slots_per_job != 0 && wanted.slots > quota.slots_per_job) {
    return Err(ErrorCode::kPermission, needs + What("slots_per_job", quota.slots_per_job, host), fewer + kRaise);
  }
  uint32_t held = 0;
  for (const Holder& holder : holders) held += holder.uid == wanted.uid && holder.job != wanted.job ? holder.slots : 0;
  if (quota.slots_per_user == 0 || held + wanted.slots <= quota.slots_per_user) return {};
  return Err(ErrorCode::kPermission,
             needs + "user " + std::to_string(wanted.uid) + " holds " + std::to_string(held) + " there already, " +
                 What("slots_per_user", quota.slots_per_user, host),
             fewer + "; end another job" + kRaise);
}

uint32_t SlotsHeld(const Plan& plan, const std::string& host) {
  uint32_t slots = 0;
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    const auto node = FindNode(plan, t, host);
    if (node && IsSumming(plan, t, *node)) slots += SlotsOf(plan.log2_slots, plan.classes);
  }
  return slots;
}

}  // namespace mlnet::control
