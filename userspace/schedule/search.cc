// SPDX-License-Identifier: Apache-2.0
#include "schedule/search.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <random>

#include "schedule/gaussian_process.h"

namespace mlnet::schedule {
namespace {

constexpr size_t kQuarters = 4;
constexpr double kMargin = 0.002;  // of the best speed: less is not worth a trial
constexpr int kStateVersion = 1;
constexpr uint64_t kLeastBytes = 64 << 10;  // smaller sums may be added another way (JoinOptions::small_bytes)

// Half an octave apart, in integers: sqrt(2) is 181/128 to 1e-4.
std::vector<uint64_t> Steps(uint64_t least, uint64_t most) {
  std::vector<uint64_t> steps;
  for (uint64_t octave = std::max(least, kLeastBytes); octave <= most; octave *= 2) {
    steps.push_back(octave);
    if (octave / 128 * 181 <= most) steps.push_back(octave / 128 * 181);
  }
  return steps;
}

// log2, linear between powers of two; 0 of 0, which only a bound may be.
double Octaves(uint64_t bytes) {
  if (bytes == 0) return 0;
  const int whole = std::bit_width(bytes) - 1;
  return whole + static_cast<double>(bytes - (uint64_t{1} << whole)) / static_cast<double>(uint64_t{1} << whole);
}

Position PositionOf(const TunePoint& point) { return {Octaves(point.partition_bytes), Octaves(point.credit_bytes)}; }

bool IsWithin(const TuneBounds& bounds, const TunePoint& p) {
  return p.partition_bytes >= bounds.least.partition_bytes && p.partition_bytes <= bounds.most.partition_bytes &&
         p.credit_bytes >= bounds.least.credit_bytes && p.credit_bytes <= bounds.most.credit_bytes &&
         p.partition_bytes <= p.credit_bytes;
}

// Speeds, so that a trial ten times as slow as another does not make all the rest look the same.
std::vector<Sample> SamplesOf(const std::vector<Trial>& trials) {
  uint64_t least = trials[0].cost_ns;
  for (const Trial& trial : trials) least = std::min(least, trial.cost_ns);
  std::vector<Sample> samples;
  for (const Trial& trial : trials) {
    samples.push_back({PositionOf(trial.point), static_cast<double>(least) / static_cast<double>(trial.cost_ns)});
  }
  return samples;
}

std::vector<Position> PositionsOf(const std::vector<TunePoint>& points) {
  std::vector<Position> positions;
  for (const TunePoint& point : points) positions.push_back(PositionOf(point));
  return positions;
}

}  // namespace

Search::Search(const TuneBounds& bounds) : bounds_(bounds), point_(bounds.start) {
  for (const uint64_t partition : Steps(bounds.least.partition_bytes, bounds.most.partition_bytes)) {
    for (const uint64_t credit : Steps(bounds.least.credit_bytes, bounds.most.credit_bytes)) {
      if (partition <= credit) points_.push_back({partition, credit});
    }
  }
  if (points_.empty()) points_.push_back(bounds.start);
}

void Search::Report(uint64_t cost_ns) {
  if (is_settled() || cost_ns == 0) return;
  trials_.push_back({point_, cost_ns});
  point_ = Next();
}

TunePoint Search::Next() const {
  if (is_settled()) return Best();
  return trials_.size() <= kQuarters ? Spread(trials_.size() - 1) : MostPromising();
}

// One from each quarter of the field, by partition and credit, as far as there are points.
TunePoint Search::Spread(size_t quarter) const {
  const Position least = PositionOf(bounds_.least), most = PositionOf(bounds_.most);
  std::vector<TunePoint> in_quarter;
  for (const TunePoint& point : points_) {
    const Position x = PositionOf(point);
    const bool is_large = 2 * x[0] > least[0] + most[0], is_wide = 2 * x[1] > least[1] + most[1];
    if (is_large == (quarter % 2 == 1) && is_wide == (quarter / 2 == 1)) in_quarter.push_back(point);
  }
  if (in_quarter.empty()) in_quarter = points_;
  std::mt19937 random(bounds_.seed + static_cast<uint32_t>(quarter));
  return in_quarter[random() % in_quarter.size()];
}

TunePoint Search::MostPromising() const {
  // Behind all points those that were tried: the best is what the model thinks of them, since the best measurement may be
  // the luckiest.
  auto positions = PositionsOf(points_);
  for (const Trial& trial : trials_) positions.push_back(PositionOf(trial.point));
  const auto predictions = Predict(SamplesOf(trials_), positions);
  double best = 0;
  for (size_t i = points_.size(); i < predictions.size(); ++i) best = std::max(best, predictions[i].mean);
  size_t chosen = 0;
  double most = -1;
  for (size_t i = 0; i < points_.size(); ++i) {
    const bool is_tried = std::any_of(trials_.begin(), trials_.end(), [&](const Trial& t) { return t.point == points_[i]; });
    const double gain = is_tried ? -1 : ExpectedImprovement(predictions[i], best, kMargin * best);
    if (gain > most) {
      most = gain;
      chosen = i;
    }
  }
  return points_[chosen];
}

TunePoint Search::Best() const {
  std::vector<Position> tried;
  for (const Trial& trial : trials_) tried.push_back(PositionOf(trial.point));
  const auto predictions = Predict(SamplesOf(trials_), tried);
  const auto best = std::max_element(predictions.begin(), predictions.end(),
                                     [](const Prediction& a, const Prediction& b) { return a.mean < b.mean; });
  return trials_[static_cast<size_t>(best - predictions.begin())].point;
}

nlohmann::json Search::ToJson(const std::string& workload) const {
  nlohmann::json trials = nlohmann::json::array();
  for (const Trial& t : trials_) {
    trials.push_back({{"partition_bytes", t.point.partition_bytes}, {"credit_bytes", t.point.credit_bytes}, {"cost_ns", t.cost_ns}});
  }
  return {{"version", kStateVersion}, {"workload", workload}, {"trials", trials}};
}

Result<Search> Search::FromJson(const TuneBounds& bounds, const nlohmann::json& state, const std::string& workload) {
  Search search(bounds);
  try {
    if (state.at("version") != kStateVersion || state.at("workload") != workload) {
      return Err(ErrorCode::kMismatch, "the tuning that was remembered is another workload's", "tune anew");
    }
    for (const auto& t : state.at("trials")) {
      const Trial trial{{t.at("partition_bytes"), t.at("credit_bytes")}, t.at("cost_ns")};
      if (!IsWithin(bounds, trial.point) || trial.cost_ns == 0) {
        return Err(ErrorCode::kMismatch, "the tuning that was remembered leaves the bounds", "tune anew");
      }
      search.trials_.push_back(trial);
    }
  } catch (const nlohmann::json::exception& e) {
    return Err(ErrorCode::kProtocol, std::string("the tuning that was remembered cannot be read: ") + e.what());
  }
  if (!search.trials_.empty()) search.point_ = search.Next();
  return search;
}

}  // namespace mlnet::schedule
