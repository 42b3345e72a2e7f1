// SPDX-License-Identifier: Apache-2.0
#include "schedule/gaussian_process.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mlnet::schedule {
namespace {

TEST(GaussianProcess, its_exponential_is_the_libraries_to_the_last_digits) {
  for (double x = 0; x > -700; x -= 0.0137) {
    ASSERT_NEAR(PortableExp(x) / std::exp(x), 1, 2e-15) << x;
  }
  EXPECT_EQ(PortableExp(0), 1);
  EXPECT_EQ(PortableExp(-1000), 0);
}

// Of max(0, y - best - margin) over the normal distribution, by Simpson's rule.
double Integrated(const Prediction& p, double best, double margin) {
  constexpr int kSteps = 20000;
  const double sigma = std::sqrt(p.variance), width = 20 * sigma / kSteps;
  double sum = 0;
  for (int i = 0; i <= kSteps; ++i) {
    const double y = p.mean + (i - kSteps / 2) * width, z = (y - p.mean) / sigma;
    const double density = std::exp(-z * z / 2) / (sigma * std::sqrt(2 * M_PI));
    sum += (i == 0 || i == kSteps ? 1 : i % 2 == 1 ? 4 : 2) * std::max(0.0, y - best - margin) * density;
  }
  return sum * width / 3;
}

TEST(GaussianProcess, expected_improvement_is_the_integral) {
  for (const double mean : {-0.3, 0.0, 0.1, 0.5, 2.0}) {
    for (const double variance : {1e-4, 0.01, 0.25, 1.0}) {
      for (const double margin : {0.0, 0.1}) {
        const Prediction p{mean, variance};
        EXPECT_NEAR(ExpectedImprovement(p, 0.2, margin), Integrated(p, 0.2, margin), 2e-6)
            << mean << " " << variance << " " << margin;
      }
    }
  }
  EXPECT_EQ(ExpectedImprovement({0.5, 0}, 0.2, 0.1), 0.5 - 0.2 - 0.1);
  EXPECT_EQ(ExpectedImprovement({0.1, 0}, 0.2, 0.1), 0);
}

double Smooth(const Position& x) { return std::sin(x[0] / 3) + 0.5 * std::cos((x[1] - x[0]) / 4); }

TEST(GaussianProcess, it_goes_through_what_was_measured_and_foresees_what_lies_between) {
  std::vector<Sample> samples;
  for (double a = 0; a <= 8; a += 2) {
    for (double b = 0; b <= 8; b += 2) samples.push_back({{a, b}, Smooth({a, b})});
  }
  std::vector<Position> at;
  for (const Sample& sample : samples) at.push_back(sample.x);
  const auto same = Predict(samples, at);
  for (size_t i = 0; i < samples.size(); ++i) EXPECT_NEAR(same[i].mean, samples[i].y, 0.01);
  const auto between = Predict(samples, std::vector<Position>{{1, 1}, {3, 5}, {7, 1}, {5, 5}});
  EXPECT_NEAR(between[0].mean, Smooth({1, 1}), 0.06);
  EXPECT_NEAR(between[1].mean, Smooth({3, 5}), 0.06);
  EXPECT_NEAR(between[2].mean, Smooth({7, 1}), 0.06);
  EXPECT_NEAR(between[3].mean, Smooth({5, 5}), 0.06);
  for (const Prediction& p : between) EXPECT_GT(p.variance, same[0].variance);
}

TEST(GaussianProcess, far_from_everything_it_knows_only_the_mean) {
  const std::vector<Sample> samples = {{{0, 0}, 1.0}, {{1, 0}, 2.0}, {{0, 1}, 3.0}};
  const auto far = Predict(samples, std::vector<Position>{{1000, -1000}, {0, 0}});
  EXPECT_NEAR(far[0].mean, 2.0, 1e-6);
  EXPECT_GT(far[0].variance, 10 * far[1].variance);
}

TEST(GaussianProcess, one_sample_and_equal_samples_are_no_special_case) {
  const auto one = Predict(std::vector<Sample>{{{0, 0}, 5.0}}, std::vector<Position>{{0, 0}, {9, 9}});
  EXPECT_DOUBLE_EQ(one[0].mean, 5.0);
  EXPECT_DOUBLE_EQ(one[1].mean, 5.0);
  EXPECT_LT(one[0].variance, one[1].variance);
  const auto twice = Predict(std::vector<Sample>{{{0, 0}, 5.0}, {{0, 0}, 5.0}}, std::vector<Position>{{0, 0}});
  EXPECT_DOUBLE_EQ(twice[0].mean, 5.0);
}

}  // namespace
}  // namespace mlnet::schedule
