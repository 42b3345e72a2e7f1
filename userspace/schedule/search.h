// SPDX-License-Identifier: Apache-2.0
// Which partition and credit to try next: Bayesian optimisation with expected improvement, as ByteScheduler tunes.
// A pure function of the settings and the trials so far. Costs are agreed, so all ranks try the same, and whoever is given the
// trials of yesterday goes on where they ended.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "mlnet/error.h"
#include "schedule/policy.h"

namespace mlnet::schedule {

struct TunePoint {
  uint64_t partition_bytes = 4 << 20;
  uint64_t credit_bytes = 16 << 20;
  bool operator==(const TunePoint&) const = default;
};

/// The same on all ranks.
struct TuneBounds {
  /// Points lie half an octave apart between these, a credit not below its partition.
  TunePoint least{.partition_bytes = 256 << 10, .credit_bytes = 1 << 20};
  TunePoint most{.partition_bytes = 32 << 20, .credit_bytes = 128 << 20};
  TunePoint start{};  // the first trial; inside of the bounds, not necessarily half an octave from anything
  uint32_t num_trials = 15;
  uint32_t seed = 1;
};

struct Trial {
  TunePoint point;
  uint64_t cost_ns = 0;
};

class Search {
 public:
  explicit Search(const TuneBounds& bounds);
  /// What ToJson gave. Refused where it was for another workload or is not within the bounds.
  static Result<Search> FromJson(const TuneBounds& bounds, const nlohmann::json& state, const std::string& workload);
  /// `workload`: what the trials depend on, in the caller's words (tensors, ranks, rate).
  nlohmann::json ToJson(const std::string& workload) const;

  bool is_settled() const { return trials_.size() >= bounds_.num_trials; }
  /// To be tried now, or the best when settled.
  const TunePoint& point() const { return point_; }
  /// Of point(): what all ranks agreed on, above 0. No effect when settled.
  void Report(uint64_t cost_ns);

  const std::vector<Trial>& trials() const { return trials_; }
  /// All that may be tried but start.
  const std::vector<TunePoint>& points() const { return points_; }

 private:
  TunePoint Next() const;
  TunePoint Spread(size_t quarter) const;
  TunePoint MostPromising() const;
  TunePoint Best() const;

  TuneBounds bounds_;
  std::vector<TunePoint> points_;
  std::vector<Trial> trials_;
  TunePoint point_;
};

}  // namespace mlnet::schedule
