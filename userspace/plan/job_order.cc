// SPDX-License-Identifier: Apache-2.0
#include "plan/job_order.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace mlnet::plan {
namespace {

constexpr double kServiceMinS = 1;  // shorter ones are decided about too rarely to count their waiting by them
constexpr uint32_t kLevelLast = 2;

struct Contended {
  uint32_t weight = 0;  // of the jobs that do not wait
  uint32_t num_waiting = 0;
  bool has_front = false;
  bool has_overdue = false;
};

using ContendedLinks = std::map<std::string, Contended>;

bool IsOverdue(const RunningJob& job, double ageing) {
  if (job.order != Order::kShortest) return false;
  return job.is_overdue ? job.waited_s > 0 : job.waited_s > ageing * std::max(job.service_s, kServiceMinS);
}

// What comes first in the order is less. An overdue job does not interrupt one whose end is in sight, but nothing
// else comes before it.
std::tuple<int, double, uint64_t, std::string> PlaceOf(const RunningJob& job, bool is_overdue, bool meets_overdue) {
  const bool keeps_front = job.is_in_front && (is_overdue || (meets_overdue && job.left_bytes));
  const int tier = keeps_front ? 0 : is_overdue ? 1 : 2;
  // Without a hint, what a job has transferred is the best guess of what it still will.
  const double left = job.left_bytes.value_or(job.done_bytes);
  const double key = tier == 1 ? -job.waited_s / std::max(job.service_s, kServiceMinS) : left;
  return {tier, key, job.opened_ms, job.name};
}

std::vector<size_t> OrderOf(const std::vector<RunningJob>& jobs, const std::vector<LinkShare>& shares, const ContendedLinks& links) {
  std::vector<size_t> order;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].order == Order::kShortest) order.push_back(i);
  }
  const auto place = [&](size_t i) {
    const bool meets_overdue =
        std::any_of(jobs[i].links.begin(), jobs[i].links.end(), [&](const auto& l) { return links.at(l).has_overdue; });
    return PlaceOf(jobs[i], shares[i].is_overdue, meets_overdue);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
  return order;
}

// In order: in front is who finds no other one of the order on its links.
void Line(const std::vector<RunningJob>& jobs, std::vector<LinkShare>& shares, ContendedLinks& links) {
  for (const size_t i : OrderOf(jobs, shares, links)) {
    const auto& own = jobs[i].links;
    shares[i].waits = std::any_of(own.begin(), own.end(), [&](const auto& l) { return links[l].has_front; });
    uint32_t before = 0;
    for (const std::string& name : own) {
      Contended& link = links[name];
      before = std::max(before, link.num_waiting);
      if (shares[i].waits) ++link.num_waiting;
      else link.has_front = true;
    }
    if (shares[i].waits) shares[i].level = std::min(before + 1, kLevelLast);
  }
}

}  // namespace

std::vector<LinkShare> ShareLinks(const std::vector<RunningJob>& jobs, double ageing) {
  std::vector<LinkShare> shares(jobs.size());
  ContendedLinks links;
  for (size_t i = 0; i < jobs.size(); ++i) {
    shares[i].is_overdue = IsOverdue(jobs[i], ageing);
    for (const std::string& name : jobs[i].links) links[name].has_overdue |= shares[i].is_overdue;
  }
  Line(jobs, shares, links);
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (shares[i].waits) continue;
    for (const std::string& name : jobs[i].links) links[name].weight += jobs[i].weight;
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    for (const std::string& name : jobs[i].links) {
      const Contended& link = links[name];
      shares[i].num_waiting = std::max(shares[i].num_waiting, link.num_waiting);
      if (shares[i].waits) shares[i].share = 0;
      else shares[i].share = std::min(shares[i].share, static_cast<double>(jobs[i].weight) / link.weight);
    }
  }
  return shares;
}

}  // namespace mlnet::plan
