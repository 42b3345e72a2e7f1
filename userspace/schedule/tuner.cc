// SPDX-License-Identifier: Apache-2.0
#include "schedule/tuner.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace mlnet::schedule {
namespace {

uint64_t TrimmedMean(std::vector<uint64_t> times) {
  std::sort(times.begin(), times.end());
  const auto trim = static_cast<std::ptrdiff_t>(times.size() / 10);
  const uint64_t sum = std::accumulate(times.begin() + trim, times.end() - trim, uint64_t{0});
  return std::max<uint64_t>(1, sum / (times.size() - 2 * static_cast<size_t>(trim)));
}

}  // namespace

Tuner::Tuner(const TuneSteps& steps, Search search) : steps_(steps), search_(std::move(search)) {
  steps_.measure_steps = std::max(steps_.measure_steps, 1u);
  Begin();
}

void Tuner::Begin() {
  point_ = search_.point();
  step_in_trial_ = 0;
  times_.clear();
  is_leading_ = false;
}

Policy Tuner::Apply(Policy policy) const {
  policy.partition_bytes = point_.partition_bytes;
  policy.credit_bytes = point_.credit_bytes;
  return policy;
}

bool Tuner::EndStep(uint64_t step_ns) {
  if (is_leading_) {
    if (lead_left_ > 0) --lead_left_;
    if (lead_left_ == 0 && !is_voting_) Begin();
    return false;
  }
  if (search_.is_settled()) return false;
  if (step_in_trial_++ < steps_.settle_steps) return false;
  times_.push_back(step_ns);
  if (times_.size() < steps_.measure_steps) return false;
  cost_ns_ = TrimmedMean(times_);
  is_voting_ = is_leading_ = true;
  lead_left_ = steps_.lead_steps;
  return true;
}

Result<void> Tuner::Agree(uint64_t cost_ns) {
  if (!is_voting_ || cost_ns == 0) {
    return Err(ErrorCode::kInvalidArgument,
               cost_ns == 0 ? "a trial cannot cost nothing" : "no trial is waiting for its cost to be agreed on");
  }
  search_.Report(cost_ns);
  is_voting_ = false;
  if (lead_left_ == 0) Begin();
  return {};
}

}  // namespace mlnet::schedule
