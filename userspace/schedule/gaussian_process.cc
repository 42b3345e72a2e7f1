// SPDX-License-Identifier: Apache-2.0
#include "schedule/gaussian_process.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <limits>

namespace mlnet::schedule {
namespace {

constexpr std::array kLengthScales = {1.5, 3.0, 6.0, 12.0};  // of an axis, in its own unit
constexpr double kDifferenceScale = 2;
constexpr std::array kNoises = {1e-4, 1e-3, 1e-2, 5e-2};     // variance, of the whole

struct Shape {
  Position scale{};
  double noise = 0;
};

double Kernel(const Shape& shape, const Position& a, const Position& b) {
  const double d0 = (a[0] - b[0]) / shape.scale[0], d1 = (a[1] - b[1]) / shape.scale[1];
  const double d2 = ((a[1] - a[0]) - (b[1] - b[0])) / kDifferenceScale;
  const double r2 = 5 * (d0 * d0 + d1 * d1 + d2 * d2), r = std::sqrt(r2);
  return (1 + r + r2 / 3) * PortableExp(-r);
}

struct Fit {
  Shape shape;
  Eigen::LLT<Eigen::MatrixXd> cholesky;
  Eigen::VectorXd weights;  // inverse covariance times y
  double signal = 1;        // variance
  double misfit = std::numeric_limits<double>::infinity();  // the n-th power of 1 / likelihood, up to a factor
};

Fit FitShape(const Shape& shape, std::span<const Sample> samples, const Eigen::VectorXd& y) {
  const auto n = static_cast<Eigen::Index>(samples.size());
  Eigen::MatrixXd covariance(n, n);
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j < i; ++j) {  // llt reads the lower half
      covariance(i, j) = Kernel(shape, samples[static_cast<size_t>(i)].x, samples[static_cast<size_t>(j)].x);
    }
    covariance(i, i) = 1 + shape.noise;
  }
  Fit fit{.shape = shape, .cholesky = covariance.llt(), .weights = {}};
  if (fit.cholesky.info() != Eigen::Success) return fit;
  fit.weights = fit.cholesky.solve(y);
  // Whatever the samples say, a signal of a hundredth of their spread is left to be found.
  fit.signal = std::max(y.dot(fit.weights) / static_cast<double>(n), 1e-2);
  fit.misfit = 1;
  for (Eigen::Index i = 0; i < n; ++i) {
    const double d = fit.cholesky.matrixLLT()(i, i);
    fit.misfit *= fit.signal * d * d;
  }
  return fit;
}

Fit BestFit(std::span<const Sample> samples, const Eigen::VectorXd& y) {
  Fit best;
  for (const double s0 : kLengthScales) {
    for (const double s1 : kLengthScales) {
      for (const double noise : kNoises) {
        Fit fit = FitShape({{s0, s1}, noise}, samples, y);
        if (fit.misfit < best.misfit) best = std::move(fit);
      }
    }
  }
  return best;
}

}  // namespace

std::vector<Prediction> Predict(std::span<const Sample> samples, std::span<const Position> at) {
  const auto n = static_cast<Eigen::Index>(samples.size());
  Eigen::VectorXd y(n);
  for (Eigen::Index i = 0; i < n; ++i) y(i) = samples[static_cast<size_t>(i)].y;
  const double mean = y.mean();
  y.array() -= mean;
  const double spread = std::sqrt(y.squaredNorm() / static_cast<double>(n));
  const double unit = spread > 0 ? spread : 1;
  y /= unit;

  const Fit fit = BestFit(samples, y);
  std::vector<Prediction> predictions;
  Eigen::VectorXd k(n);
  for (const Position& x : at) {
    for (Eigen::Index i = 0; i < n; ++i) k(i) = Kernel(fit.shape, samples[static_cast<size_t>(i)].x, x);
    const double known = k.dot(fit.cholesky.solve(k));
    const double variance = fit.signal * std::max(0.0, 1 - known);
    predictions.push_back({mean + unit * k.dot(fit.weights), unit * unit * variance});
  }
  return predictions;
}

double ExpectedImprovement(const Prediction& p, double best, double margin) {
  const double gain = p.mean - best - margin;
  const double sigma = std::sqrt(p.variance);
  if (sigma <= 0) return std::max(0.0, gain);
  constexpr double kInverseSqrt2 = 0.70710678118654752, kInverseSqrt2Pi = 0.39894228040143268;
  const double z = gain / sigma, x = std::abs(z) * kInverseSqrt2;
  const double bell = PortableExp(-z * z / 2);
  // Abramowitz and Stegun 7.1.26, right to 1.5e-7: the upper tail of the normal distribution beyond |z|.
  const double t = 1 / (1 + 0.3275911 * x);
  const double tail =
      bell * t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) / 2;
  return std::max(0.0, gain * (z < 0 ? tail : 1 - tail) + sigma * kInverseSqrt2Pi * bell);
}

double PortableExp(double x) {
  if (x < -700) return 0;
  constexpr std::array kReciprocals = {1.0 / 13, 1.0 / 12, 1.0 / 11, 1.0 / 10, 1.0 / 9, 1.0 / 8, 1.0 / 7,
                                       1.0 / 6,  1.0 / 5,  1.0 / 4,  1.0 / 3,  1.0 / 2, 1.0};
  constexpr double kLog2e = 1.4426950408889634, kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  const double k = std::floor(x * kLog2e + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1;
  for (const double reciprocal : kReciprocals) sum = 1 + sum * (r * reciprocal);
  return std::ldexp(sum, static_cast<int>(k));
}

}  // namespace mlnet::schedule
