// SPDX-License-Identifier: Apache-2.0
#include "control/order.h"

#include <algorithm>
#include <cmath>

#include "control/job.h"
#include "control/priority.h"

namespace mlnet::control {
namespace {

constexpr double kLinkWindow = 128;     // packets of all jobs together on a link that several use
constexpr uint32_t kWindowMin = 2;
constexpr uint32_t kNextWindow = 8;     // of who is next in line: enough to fill the link until it hears that it is free
constexpr uint64_t kWaitingGapUs = 10'000;  // between any two packets of the jobs that wait on a link
constexpr uint64_t kDoneSteps = 16;
constexpr uint64_t kDoneStepMin = 1 << 20;
constexpr double kRateSinceS = 0.5;     // in front for so long: what it did meanwhile is a rate

std::vector<std::string> LinksOf(const Plan& plan) {
  std::vector<std::string> links;
  for (const PlanPort& port : plan.ports) {
    if (!port.host.empty()) links.push_back(port.host + "/" + port.iface);
  }
  return links;
}

bool IsMoving(const JobView& view) { return view.job.state == kReady && view.job.progress.is_moving; }

double ElapsedS(const JobProgress& progress, uint64_t now_ms) {
  return now_ms > progress.since_ms ? static_cast<double>(now_ms - progress.since_ms) / 1e3 : 0.0;
}

double WaitedS(const JobProgress& p, double ageing, uint64_t now_ms) {
  const double waited_s = static_cast<double>(p.waited_ms) / 1e3;
  if (!p.is_moving) return waited_s;
  return std::max(0.0, waited_s + ElapsedS(p, now_ms) * (p.is_in_front ? -ageing : 1.0));
}

double ServedS(const JobProgress& p, uint64_t now_ms) {
  return static_cast<double>(p.served_ms) / 1e3 + (p.is_moving && p.is_in_front ? ElapsedS(p, now_ms) : 0.0);
}

// Bytes a second of a job in front, of the fastest one there is; 0: none has been there for long enough.
double RateOf(const std::vector<JobView>& jobs, uint64_t now_ms) {
  double rate = 0;
  for (const JobView& view : jobs) {
    const JobProgress& p = view.job.progress;
    const double served_s = ServedS(p, now_ms);
    if (served_s >= kRateSinceS) rate = std::max(rate, static_cast<double>(p.done_bytes) / served_s);
  }
  return rate;
}

bool HasHint(const JobProgress& p) { return p.work_bytes > p.done_bytes; }

plan::RunningJob RunningOf(const JobView& view, double rate, double ageing, uint64_t now_ms) {
  const JobProgress& p = view.job.progress;
  plan::RunningJob job;
  job.name = view.job.name;
  job.order = view.job.spec.order == "shortest" ? plan::Order::kShortest : plan::Order::kFair;
  job.weight = view.job.spec.weight;
  job.done_bytes = static_cast<double>(p.done_bytes);
  if (HasHint(p)) job.left_bytes = static_cast<double>(p.work_bytes - p.done_bytes);
  const double service_s = HasHint(p) && rate > 0 ? static_cast<double>(p.work_bytes) / rate : 0;
  job.service_s = std::max(service_s, ServedS(p, now_ms));
  job.waited_s = WaitedS(p, ageing, now_ms);
  job.is_in_front = p.is_in_front;
  job.is_overdue = p.is_overdue;
  job.opened_ms = view.job.opened_ms;
  job.links = LinksOf(view.job.plan);
  return job;
}

}  // namespace

Grant GrantOf(const plan::LinkShare& share) {
  if (share.waits && share.level == 1) return {kNextWindow, 0, true, kLowerEffort};
  if (share.waits) return {1, kWaitingGapUs * std::max(1U, share.num_waiting), true, kLowerEffort};
  if (share.share >= 1) return {};
  return {std::max(kWindowMin, static_cast<uint32_t>(std::lround(kLinkWindow * share.share))), 0, false, -1};
}

std::map<std::string, plan::LinkShare> SharesOf(const std::vector<JobView>& jobs, double ageing, uint64_t now_ms) {
  const double rate = RateOf(jobs, now_ms);
  std::vector<plan::RunningJob> running;
  for (const JobView& view : jobs) {
    if (IsMoving(view)) running.push_back(RunningOf(view, rate, ageing, now_ms));
  }
  const auto shares = plan::ShareLinks(running, ageing);
  std::map<std::string, plan::LinkShare> by_name;
  for (size_t i = 0; i < running.size(); ++i) by_name[running[i].name] = shares[i];
  return by_name;
}

bool NoteProgress(JobRecord& job, const Sight& sight, const plan::LinkShare* share, double ageing, uint64_t now_ms) {
  JobProgress& p = job.progress;
  const bool is_in_front = share != nullptr && !share->waits;
  const bool is_overdue = share != nullptr && share->is_overdue;
  const uint64_t work_bytes = job.spec.work_bytes != 0 ? job.spec.work_bytes : sight.work_bytes;
  const uint64_t step = std::max(kDoneStepMin, (work_bytes != 0 ? work_bytes : p.done_bytes) / kDoneSteps);
  const bool is_turn = p.is_moving != sight.is_moving || (share != nullptr && (p.is_in_front != is_in_front || p.is_overdue != is_overdue));
  const bool is_ordered = job.spec.order == "shortest";
  if (!is_turn && p.work_bytes == work_bytes && !(is_ordered && sight.done_bytes >= p.done_bytes + step)) return false;
  if (is_turn) {
    const uint64_t waited_ms = static_cast<uint64_t>(WaitedS(p, ageing, now_ms) * 1e3);
    p.served_ms = static_cast<uint64_t>(ServedS(p, now_ms) * 1e3);
    p.waited_ms = waited_ms;
    p.since_ms = now_ms;
  }
  p.work_bytes = work_bytes;
  p.done_bytes = std::max(p.done_bytes, sight.done_bytes);
  p.is_moving = sight.is_moving;
  if (share != nullptr) {
    p.is_in_front = is_in_front;
    p.is_overdue = is_overdue;
  }
  return true;
}

}  // namespace mlnet::control
