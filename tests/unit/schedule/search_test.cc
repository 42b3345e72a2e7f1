// SPDX-License-Identifier: Apache-2.0
// The search on surfaces made from ByteScheduler's overhead-aware model: an iteration takes what is computed, what is transferred, th a
// chunk, and what the urgent waits for a chunk and for the credit under way; where the credit is short the link idles.
#include "schedule/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

namespace mlnet::schedule {
namespace {

struct Surface {
  const char* name;
  double chunk_s, bytes_per_s, bytes, round_trip_s, compute_s;

  double CostS(const TunePoint& p) const {
    const auto d = static_cast<double>(p.partition_bytes), c = static_cast<double>(p.credit_bytes);
    const double transfer = bytes / bytes_per_s * std::max(1.0, (bytes_per_s * round_trip_s + d) / c);
    return compute_s + transfer + chunk_s * bytes / d + (d + c) / bytes_per_s;
  }
};

constexpr Surface kSurfaces[] = {
    {"VGG-19 at 10 Gb/s, 50 us a chunk", 50e-6, 1.25e9, 5.48e8, 100e-6, 0.3},
    {"the same, 200 us, slow round trip", 200e-6, 1.25e9, 5.48e8, 1e-3, 0.3},
    {"ResNet-50 at 1 Gb/s", 50e-6, 1.25e8, 1e8, 100e-6, 0.1},
    {"40 Gb/s", 100e-6, 5e9, 5.48e8, 500e-6, 0.1},
    {"1 ms a chunk", 1e-3, 1.25e9, 5.48e8, 2e-3, 0.1},
    {"500 Mb/s, nothing computed", 20e-6, 6.25e7, 1e8, 100e-6, 0},
    {"24 Gb/s, long way, nothing computed", 300e-6, 3e9, 1e9, 3e-3, 0},
    {"the bounds' far corner is best", 2e-3, 1.25e9, 1e9, 30e-3, 0.1},
};

double Normal(std::mt19937& random) {
  double sum = 0;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random()) / 4294967296.0;
  return sum - 6;
}

// The cost of what it settles on, over that of the best point of the grid; without noise, both.
double Settle(const Surface& surface, double noise, uint32_t seed) {
  Search search({.seed = seed});
  std::mt19937 random(seed + 77);
  double best = surface.CostS(search.points()[0]);
  for (const TunePoint& point : search.points()) best = std::min(best, surface.CostS(point));
  while (!search.is_settled()) {
    search.Report(static_cast<uint64_t>(1e9 * surface.CostS(search.point()) * (1 + noise * Normal(random))));
  }
  EXPECT_LE(search.trials().size(), 15u);
  return surface.CostS(search.point()) / best;
}

TEST(Search, fifteen_trials_find_a_point_within_five_percent_of_the_grids_best) {
  constexpr uint32_t kSeeds = 20;
  for (const double noise : {0.0, 0.01, 0.02}) {
    uint32_t num_worse = 0, num_runs = 0;
    for (const Surface& surface : kSurfaces) {
      double sum = 0, worst = 0;
      for (uint32_t seed = 0; seed < kSeeds; ++seed) {
        const double relative = Settle(surface, noise, seed);
        sum += relative;
        worst = std::max(worst, relative);
        ++num_runs;
        if (relative <= 1.05) continue;
        ++num_worse;
        std::printf("  %s, noise %.2f, seed %u: %.3f\n", surface.name, noise, seed, relative);
      }
      EXPECT_LE(worst, 1.10) << surface.name;
      EXPECT_LE(sum / kSeeds, 1.03) << surface.name;
      std::printf("noise %.2f  mean %.3f  worst %.3f  seeds 0..%u  %s\n", noise, sum / kSeeds, worst, kSeeds - 1, surface.name);
    }
    // Noise of 2 % on what is 5 % apart may win, once in twenty.
    EXPECT_LE(num_worse, noise < 0.02 ? 0 : num_runs / 20) << "of " << num_runs << " at noise " << noise;
  }
}

TEST(Search, the_same_costs_lead_to_the_same_trials_and_other_seeds_to_others) {
  const auto trials = [](uint32_t seed) {
    Search search({.seed = seed});
    while (!search.is_settled()) search.Report(static_cast<uint64_t>(1e9 * kSurfaces[0].CostS(search.point())));
    return search.ToJson("w")["trials"];
  };
  EXPECT_EQ(trials(3), trials(3));
  EXPECT_NE(trials(3), trials(4));
}

TEST(Search, no_trial_leaves_the_bounds_or_is_made_twice) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const TuneBounds bounds{.least = {1 << 20, 2 << 20}, .most = {8 << 20, 64 << 20}, .start = {2 << 20, 8 << 20}, .seed = seed};
    Search search(bounds);
    EXPECT_EQ(search.point(), bounds.start);
    std::mt19937 random(seed);
    std::vector<TunePoint> tried;
    while (!search.is_settled()) {
      const TunePoint p = search.point();
      ASSERT_GE(p.partition_bytes, bounds.least.partition_bytes);
      ASSERT_LE(p.partition_bytes, bounds.most.partition_bytes);
      ASSERT_GE(p.credit_bytes, bounds.least.credit_bytes);
      ASSERT_LE(p.credit_bytes, bounds.most.credit_bytes);
      ASSERT_LE(p.partition_bytes, p.credit_bytes);
      ASSERT_EQ(p.partition_bytes % 512, 0u);
      if (tried.size() > 4) {
        ASSERT_EQ(std::count(tried.begin(), tried.end(), p), 0);
      }
      tried.push_back(p);
      search.Report(1 + random() % 1000000);  // whatever the costs
    }
    EXPECT_EQ(tried.size(), 15u);
    EXPECT_EQ(std::count(tried.begin(), tried.end(), search.point()) > 0, true);
  }
}

TEST(Search, bounds_that_leave_nothing_leave_the_start) {
  Search search({.least = {0, 0}, .most = {0, 0}, .start = {4 << 20, 8 << 20}, .num_trials = 3});
  while (!search.is_settled()) {
    EXPECT_EQ(search.point(), (TunePoint{4 << 20, 8 << 20}));
    search.Report(7);
  }
}

TEST(Search, what_was_remembered_goes_on_as_if_it_had_never_stopped) {
  const TuneBounds bounds{.seed = 5};
  Search whole(bounds), part(bounds);
  for (uint32_t i = 0; !whole.is_settled(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(part.point(), whole.point());
    const auto cost = static_cast<uint64_t>(1e9 * kSurfaces[1].CostS(whole.point()));
    whole.Report(cost);
    part.Report(cost);
    auto again = Search::FromJson(bounds, nlohmann::json::parse(part.ToJson("vgg, 4 ranks").dump()), "vgg, 4 ranks");
    ASSERT_TRUE(again.has_value());
    part = *again;
  }
  EXPECT_TRUE(part.is_settled());
  EXPECT_EQ(part.point(), whole.point());
  part.Report(1);  // no effect
  EXPECT_EQ(part.trials().size(), 15u);
}

TEST(Search, what_was_remembered_of_something_else_is_refused) {
  Search search({});
  search.Report(5);
  nlohmann::json state = search.ToJson("a");
  EXPECT_TRUE(Search::FromJson({}, state, "a").has_value());
  EXPECT_EQ(Search::FromJson({}, state, "b").error().code, ErrorCode::kMismatch);
  EXPECT_EQ(Search::FromJson({.least = {8 << 20, 32 << 20}}, state, "a").error().code, ErrorCode::kMismatch);
  EXPECT_EQ(Search::FromJson({}, nlohmann::json::array(), "a").error().code, ErrorCode::kProtocol);
  state["trials"][0]["cost_ns"] = "many";
  EXPECT_EQ(Search::FromJson({}, state, "a").error().code, ErrorCode::kProtocol);
  state["trials"][0]["cost_ns"] = 0;
  EXPECT_EQ(Search::FromJson({}, state, "a").error().code, ErrorCode::kMismatch);
  state["version"] = 2;
  EXPECT_EQ(Search::FromJson({}, state, "a").error().code, ErrorCode::kMismatch);
}

}  // namespace
}  // namespace mlnet::schedule
