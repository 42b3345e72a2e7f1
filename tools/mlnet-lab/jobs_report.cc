// SPDX-License-Identifier: Apache-2.0
#include "jobs_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace mlnet::lab {
namespace {

double SumOf(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// Between two looks the counter grew evenly, as far as anybody knows.
double BytesAt(const Samples& samples, double at_ns) {
  std::pair<double, double> before{0, 0};
  for (const auto& [ns, bytes] : samples) {
    const auto at = static_cast<double>(ns), is = static_cast<double>(bytes);
    if (at >= at_ns) return before.first == 0 ? is : before.second + (is - before.second) * (at_ns - before.first) / (at - before.first);
    before = {at, is};
  }
  return before.second;
}

}  // namespace

double JobsOutcome::Mean() const {
  double sum = 0;
  for (const JobOutcome& job : jobs) sum += job.seconds;
  return jobs.empty() ? 0 : sum / static_cast<double>(jobs.size());
}

double JobsOutcome::Last() const {
  double last = 0;
  for (const JobOutcome& job : jobs) last = std::max(last, job.seconds);
  return last;
}

uint64_t JobsOutcome::Wrong() const {
  uint64_t wrong = 0;
  for (const JobOutcome& job : jobs) wrong += job.wrong;
  return wrong;
}

std::vector<double> JobsOutcome::EvenBytes() const {
  double first_end_ns = std::numeric_limits<double>::max();
  for (const JobOutcome& job : jobs) {
    if (!job.samples.empty()) first_end_ns = std::min(first_end_ns, static_cast<double>(job.samples.back().first));
  }
  std::vector<double> even;
  for (const JobOutcome& job : jobs) even.push_back(BytesAt(job.samples, first_end_ns) / job.weight);
  return even;
}

double JainIndex(const std::vector<double>& values) {
  const double sum = SumOf(values);
  double squares = 0;
  for (const double value : values) squares += value * value;
  return squares == 0 ? 1 : sum * sum / (static_cast<double>(values.size()) * squares);
}

double MaxDeviation(const std::vector<double>& values) {
  const double mean = values.empty() ? 0 : SumOf(values) / static_cast<double>(values.size());
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value - mean));
  return mean == 0 ? 0 : most / mean;
}

Json OutcomeToJson(const JobsOutcome& outcome) {
  const auto even = outcome.EvenBytes();
  Json jobs = Json::array();
  for (size_t i = 0; i < outcome.jobs.size(); ++i) {
    const JobOutcome& job = outcome.jobs[i];
    jobs.push_back({{"name", job.name}, {"weight", job.weight}, {"seconds", job.seconds}, {"even_bytes", even[i]},
                    {"wrong", job.wrong}, {"checked", job.checked}, {"summed_in_kernel", job.summed_in_kernel},
                    {"retransmits", job.retransmits}});
  }
  return {{"order", outcome.order}, {"mean_s", outcome.Mean()}, {"last_s", outcome.Last()}, {"jain", JainIndex(even)},
          {"max_deviation", MaxDeviation(even)}, {"cpu_share", outcome.cpu_share}, {"wrong", outcome.Wrong()}, {"jobs", jobs}};
}

std::string RenderOutcomes(const std::vector<JobsOutcome>& outcomes) {
  std::string text = "# order      jobs    mean s    last s   mean/fair  last/fair    jain  deviation  resent    cpu  wrong\n";
  for (const JobsOutcome& outcome : outcomes) {
    const auto even = outcome.EvenBytes();
    uint64_t resent = 0, summed = 0;
    for (const JobOutcome& job : outcome.jobs) {
      resent += job.retransmits;
      summed += job.summed_in_kernel;
    }
    const double share = summed == 0 ? 0 : static_cast<double>(resent) / static_cast<double>(summed);
    const JobsOutcome& first = outcomes.front();
    text += fmt::format("{:<10} {:>6} {:>9.2f} {:>9.2f} {:>11.3f} {:>10.3f} {:>7.3f} {:>9.1f}% {:>6.1f}% {:>5.0f}% {:>6}\n", outcome.order,
                        outcome.jobs.size(), outcome.Mean(), outcome.Last(), outcome.Mean() / first.Mean(),
                        outcome.Last() / first.Last(), JainIndex(even), MaxDeviation(even) * 100, share * 100,
                        outcome.cpu_share * 100, outcome.Wrong());
  }
  return text;
}

}  // namespace mlnet::lab
