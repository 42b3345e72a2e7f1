// SPDX-License-Identifier: Apache-2.0
#include "layers_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "mlnet-perf/layers_files.h"
#include "schedule/class_map.h"

namespace mlnet::lab {
namespace {

constexpr double kNsPerS = 1e9;

const perf::RankRow& RowOf(const std::vector<perf::RankRow>& rows, const char* name) {
  static const perf::RankRow kNone;
  const auto row = std::find_if(rows.begin(), rows.end(), [name](const perf::RankRow& r) { return r.variant == name; });
  return row == rows.end() ? kNone : *row;
}

/// By call or iteration: the largest (or least) that a rank said.
std::vector<uint64_t> OverRanks(const std::vector<std::vector<perf::RankRow>>& ranks, const char* name, bool is_largest) {
  std::vector<uint64_t> over = RowOf(ranks.front(), name).times_ns;
  for (const auto& rows : ranks) {
    const auto& own = RowOf(rows, name).times_ns;
    for (size_t i = 0; i < std::min(over.size(), own.size()); ++i) {
      over[i] = is_largest ? std::max(over[i], own[i]) : std::min(over[i], own[i]);
    }
  }
  return over;
}

double Seconds(uint64_t ns) { return static_cast<double>(ns) / kNsPerS; }

double Share(uint64_t part, uint64_t whole) { return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole); }

}  // namespace

Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

double LayersOutcome::BoundS() const { return Seconds(schedule::BestIteration(perf::LayersAt(trace, BytesPerS()))); }

uint64_t LayersOutcome::Wrong() const {
  uint64_t wrong = 0;
  for (const PolicyOutcome& policy : policies) wrong += policy.wrong;
  return wrong;
}

void MergeTurn(const std::vector<std::vector<perf::RankRow>>& ranks, uint64_t bytes, PolicyOutcome& outcome, std::vector<double>* rates) {
  if (rates != nullptr) {
    for (const uint64_t ns : OverRanks(ranks, perf::kRateRow, true)) rates->push_back(static_cast<double>(bytes) / Seconds(ns));
  }
  const auto starts = OverRanks(ranks, perf::kStartRow, false), ends = OverRanks(ranks, perf::kEndRow, true);
  for (size_t i = 0; i < starts.size(); ++i) outcome.iterations_s.push_back(Seconds(ends[i] - starts[i]));
  for (const uint64_t ns : OverRanks(ranks, perf::kFirstWaitRow, true)) outcome.first_waits_s.push_back(Seconds(ns));
  for (const auto& rows : ranks) {
    const perf::RankRow& total = RowOf(rows, perf::kTotalRow);
    outcome.wrong += total.wrong;
    outcome.checked += total.checked;
    outcome.summed_in_kernel += total.summed_in_kernel;
    outcome.retransmits += total.retransmits;
  }
  const auto& calls = RowOf(ranks.front(), perf::kTotalRow).times_ns;
  for (size_t c = 0; c < std::min(calls.size(), outcome.calls.size()); ++c) outcome.calls[c] += calls[c];
}

Json OutcomeToJson(const LayersOutcome& outcome) {
  const auto layers = perf::LayersAt(outcome.trace, outcome.BytesPerS());
  const Spread rate = SpreadOf(outcome.rates);
  Json policies = Json::array();
  for (const PolicyOutcome& policy : outcome.policies) {
    const Spread time = SpreadOf(policy.iterations_s);
    policies.push_back({{"policy", policy.policy},
                        {"median_s", time.median},
                        {"least_s", time.least},
                        {"most_s", time.most},
                        {"iterations_s", policy.iterations_s},
                        {"first_wait_s", SpreadOf(policy.first_waits_s).median},
                        {"to_bound", time.median / outcome.BoundS()},
                        {"to_fifo", time.median / SpreadOf(outcome.policies.front().iterations_s).median},
                        {"partition_bytes", policy.settings.partition_bytes},
                        {"credit_bytes", policy.settings.credit_bytes},
                        {"classes", policy.settings.classes.num_levels},
                        {"calls", policy.calls},
                        {"summed_in_kernel", policy.summed_in_kernel},
                        {"retransmits", policy.retransmits},
                        {"cpu_share", Share(policy.cpu_busy, policy.cpu_total)},
                        {"wrong", policy.wrong},
                        {"checked", policy.checked}});
  }
  return {{"model", outcome.trace.model},
          {"scale", outcome.scale},
          {"ranks", outcome.ranks},
          {"bytes", outcome.trace.Bytes()},
          {"compute_s", Seconds(outcome.trace.ComputeNs())},
          {"bytes_per_s", {{"median", rate.median}, {"least", rate.least}, {"most", rate.most}}},
          {"bound_s", outcome.BoundS()},
          {"fifo_bound_s", Seconds(schedule::FifoIteration(layers))},
          {"wrong", outcome.Wrong()},
          {"policies", policies}};
}

std::string RenderOutcome(const LayersOutcome& outcome) {
  const Spread rate = SpreadOf(outcome.rates);
  const auto layers = perf::LayersAt(outcome.trace, outcome.BytesPerS());
  std::string text = fmt::format(
      "# {} / {:g}, {} ranks: {} layers, {:.1f} MB; computing {:.3f} s, sending {:.3f} s at {:.2f} MB/s [{:.2f}, {:.2f}]\n"
      "# bound {:.3f} s; FIFO at best {:.3f} s\n"
      "# policy         median s      least       most   to bound  to first   first waits   calls  resent    cpu  wrong\n",
      outcome.trace.model, outcome.scale, outcome.ranks, layers.size(), static_cast<double>(outcome.trace.Bytes()) / 1e6,
      Seconds(outcome.trace.ComputeNs()), static_cast<double>(outcome.trace.Bytes()) / rate.median, rate.median / 1e6, rate.least / 1e6,
      rate.most / 1e6, outcome.BoundS(), Seconds(schedule::FifoIteration(layers)));
  const double first = SpreadOf(outcome.policies.front().iterations_s).median;
  for (const PolicyOutcome& policy : outcome.policies) {
    const Spread time = SpreadOf(policy.iterations_s);
    uint64_t calls = 0;
    for (const uint64_t of_class : policy.calls) calls += of_class;
    text += fmt::format("{:<15} {:>9.3f} {:>10.3f} {:>10.3f} {:>10.3f} {:>9.3f} {:>13.3f} {:>7} {:>6.1f}% {:>5.0f}% {:>6}\n", policy.policy,
                        time.median, time.least, time.most, time.median / outcome.BoundS(), time.median / first,
                        SpreadOf(policy.first_waits_s).median, calls, Share(policy.retransmits, policy.summed_in_kernel) * 100,
                        Share(policy.cpu_busy, policy.cpu_total) * 100, policy.wrong);
  }
  return text;
}

}  // namespace mlnet::lab
