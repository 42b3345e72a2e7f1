// SPDX-License-Identifier: Apache-2.0
// Weights against closed forms, against brute force, and against any change.
#include "plan/weights.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

namespace mlnet::plan {
namespace {

using Matrix = std::vector<std::vector<double>>;

double Busiest(const Matrix& seconds, const std::vector<double>& weights) {
  double busiest = 0;
  for (size_t l = 0; l < seconds[0].size(); ++l) {
    double load = 0;
    for (size_t t = 0; t < seconds.size(); ++t) load += weights[t] * seconds[t][l];
    busiest = std::max(busiest, load);
  }
  return busiest;
}

TEST(Weights, AloneATreeCarriesAll) { EXPECT_EQ(BalanceWeights({{3, 1}}), std::vector<double>{1}); }

TEST(Weights, WithoutAnyRateAreEqual) { EXPECT_EQ(BalanceWeights({{0}, {0}}), (std::vector<double>{0.5, 0.5})); }

// Servers with links of their own: the share of each is its rate over the sum of rates.
TEST(Weights, FollowTheRatesOfServers) {
  const auto w = BalanceWeights({{1 / 1.0, 0, 0}, {0, 1 / 2.0, 0}, {0, 0, 1 / 5.0}});
  EXPECT_NEAR(w[0], 1 / 8.0, 1e-5);
  EXPECT_NEAR(w[1], 2 / 8.0, 1e-5);
  EXPECT_NEAR(w[2], 5 / 8.0, 1e-5);
}

TEST(Weights, OfATreeThatOnlyHurtsAreZero) {
  const auto w = BalanceWeights({{1, 1}, {1, 9}});
  EXPECT_EQ(w[1], 0);
  EXPECT_EQ(w[0], 1);
}

// Link 0 has 1 whatever the weights, so trees 1 and 2 could be shared in any way: alike means equal.
TEST(Weights, OfTreesThatAreAlikeAreEqualThoughAnyWouldDo) {
  const auto w = BalanceWeights({{1, 0.5, 0}, {1, 0, 0.5}});
  EXPECT_NEAR(w[0], 0.5, 1e-9);
}

// Every pair of weights of three trees on a grid of 1/200.
RC_GTEST_PROP(Weights, AreAsGoodAsTheBestOfAGrid, ()) {
  const size_t links = *rc::gen::inRange<size_t>(1, 7);
  Matrix seconds(3);
  for (auto& row : seconds) {
    for (size_t l = 0; l < links; ++l) row.push_back(*rc::gen::inRange(0, 100) / 10.0);
  }
  double best = 1e300;
  constexpr int kGrid = 200;
  for (int a = 0; a <= kGrid; ++a) {
    for (int b = 0; a + b <= kGrid; ++b) {
      best = std::min(best, Busiest(seconds, {a * 1.0 / kGrid, b * 1.0 / kGrid, (kGrid - a - b) * 1.0 / kGrid}));
    }
  }
  const auto w = BalanceWeights(seconds);
  RC_ASSERT(std::abs(std::accumulate(w.begin(), w.end(), 0.0) - 1) < 1e-9);
  RC_ASSERT(*std::min_element(w.begin(), w.end()) >= 0);
  RC_ASSERT(Busiest(seconds, w) <= best * 1.002 + 1e-9);
}

// More trees than a grid can hold: at least no move of weight from one tree to another may help.
RC_GTEST_PROP(Weights, NoMoveBetweenTwoTreesHelps, ()) {
  const size_t trees = *rc::gen::inRange<size_t>(2, 12), links = *rc::gen::inRange<size_t>(1, 20);
  Matrix seconds(trees);
  for (auto& row : seconds) {
    for (size_t l = 0; l < links; ++l) row.push_back(*rc::gen::inRange(0, 1000) / 100.0);
  }
  const auto w = BalanceWeights(seconds);
  const double busiest = Busiest(seconds, w);
  for (size_t a = 0; a < trees; ++a) {
    for (size_t b = 0; b < trees; ++b) {
      for (double move : {w[a], w[a] / 2, w[a] / 10, w[a] / 100}) {
        auto moved = w;
        moved[a] -= move;
        moved[b] += move;
        RC_ASSERT(Busiest(seconds, moved) >= busiest * (1 - 2e-3));
      }
    }
  }
}

}  // namespace
}  // namespace mlnet::plan
