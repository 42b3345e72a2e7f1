// SPDX-License-Identifier: Apache-2.0
// A barrier method for the linear programme   min v,  A w <= v,  sum w = 1,  w >= 0.   Why not the simplex method:
// where many weights are equally good it returns a corner, say half of the trees unused, and a barrier the middle.
#include "plan/weights.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mlnet::plan {
namespace {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

constexpr double kGap = 1e-7;           // of v, which starts at 1
constexpr double kLeastShare = 1e-3;    // of an equal share; a tree with less costs a pool and helps nobody
constexpr int kNewtonStepsMax = 60;     // per barrier; 5 to 10 are usual

// Rows of A: links, scaled so that equal weights have the maximum 1. Links that are loaded alike are one row.
Matrix RowsOf(const Matrix& seconds) {
  const size_t trees = seconds.size(), links = seconds.empty() ? 0 : seconds[0].size();
  Matrix rows;
  double busiest = 0;
  for (size_t l = 0; l < links; ++l) {
    Vector row(trees);
    double sum = 0;
    for (size_t t = 0; t < trees; ++t) sum += row[t] = seconds[t][l];
    if (sum > 0) rows.push_back(std::move(row));
    busiest = std::max(busiest, sum / static_cast<double>(trees));
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  for (Vector& row : rows) {
    for (double& a : row) a /= busiest;
  }
  return rows;
}

double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// H = L L^T in place; H is positive definite by construction, the floor only guards against rounding.
void Factor(Matrix& h) {
  for (size_t i = 0; i < h.size(); ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = h[i][j];
      for (size_t k = 0; k < j; ++k) sum -= h[i][k] * h[j][k];
      h[i][j] = i == j ? std::sqrt(std::max(sum, 1e-300)) : sum / h[j][j];
    }
  }
}

Vector Solve(const Matrix& factor, Vector x) {
  const size_t n = x.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) x[i] -= factor[i][k] * x[k];
    x[i] /= factor[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) x[i] -= factor[k][i] * x[k];
    x[i] /= factor[i][i];
  }
  return x;
}

// The barrier function at x = (w, v); infinite outside.
double Value(const Matrix& rows, double sharpness, const Vector& x) {
  const Vector w(x.begin(), x.end() - 1);
  double value = sharpness * x.back();
  for (double share : w) value -= share > 0 ? std::log(share) : -std::numeric_limits<double>::infinity();
  for (const Vector& row : rows) {
    const double slack = x.back() - Dot(row, w);
    value -= slack > 0 ? std::log(slack) : -std::numeric_limits<double>::infinity();
  }
  return value;
}

struct Step {
  Vector direction;
  double decrement = 0;  // what the function falls by, to first order
};

Step NewtonStep(const Matrix& rows, double sharpness, const Vector& x) {
  const size_t trees = x.size() - 1;
  const Vector w(x.begin(), x.end() - 1);
  Vector gradient(x.size(), 0);
  Matrix hessian(x.size(), Vector(x.size(), 0));
  gradient[trees] = sharpness;
  for (size_t t = 0; t < trees; ++t) {
    gradient[t] = -1 / w[t];
    hessian[t][t] = 1 / (w[t] * w[t]);
  }
  for (const Vector& row : rows) {
    const double inverse = 1 / (x.back() - Dot(row, w));
    for (size_t i = 0; i <= trees; ++i) {
      const double a = (i < trees ? row[i] : -1) * inverse;
      if (a == 0) continue;
      gradient[i] += a;
      for (size_t j = 0; j <= i; ++j) hessian[i][j] += a * (j < trees ? row[j] : -1) * inverse;
    }
  }
  Factor(hessian);
  Vector ones(x.size(), 1);
  ones[trees] = 0;
  // The step keeps the sum of the weights: the part along H^-1 * 1 is taken out.
  Step step{Solve(hessian, gradient)};
  const Vector along = Solve(hessian, ones);
  const double correction = Dot(ones, step.direction) / Dot(ones, along);
  for (size_t i = 0; i < x.size(); ++i) step.direction[i] = -(step.direction[i] - correction * along[i]);
  step.decrement = -Dot(gradient, step.direction);
  return step;
}

void Centre(const Matrix& rows, double sharpness, Vector& x) {
  for (int n = 0; n < kNewtonStepsMax; ++n) {
    const Step step = NewtonStep(rows, sharpness, x);
    if (!(step.decrement > 1e-10)) return;
    const double here = Value(rows, sharpness, x);
    double length = 1;
    Vector next = x;
    do {
      for (size_t i = 0; i < x.size(); ++i) next[i] = x[i] + length * step.direction[i];
      length /= 2;
    } while (length > 1e-12 && !(Value(rows, sharpness, next) <= here - 0.1 * length * step.decrement));
    if (length <= 1e-12) return;
    x = next;
  }
}

}  // namespace

std::vector<double> BalanceWeights(const std::vector<std::vector<double>>& seconds) {
  const size_t trees = seconds.size();
  Vector weights(trees, trees == 0 ? 0 : 1 / static_cast<double>(trees));
  const Matrix rows = RowsOf(seconds);
  if (trees < 2 || rows.empty()) return weights;

  Vector x = weights;
  x.push_back(2);  // strictly above the busiest link, which is 1
  const double constraints = static_cast<double>(rows.size() + trees);
  for (double sharpness = constraints; constraints / sharpness > kGap; sharpness *= 8) Centre(rows, sharpness, x);

  double sum = 0;
  for (size_t t = 0; t < trees; ++t) {
    weights[t] = x[t] * static_cast<double>(trees) < kLeastShare ? 0 : x[t];
    sum += weights[t];
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

}  // namespace mlnet::plan
