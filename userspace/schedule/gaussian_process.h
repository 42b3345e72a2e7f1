// SPDX-License-Identifier: Apache-2.0
// A Gaussian process over two axes (Matern 5/2, its length scales and noise by likelihood), and expected improvement.
// Two points are also as far apart as the differences of their coordinates are: for logarithms that is the ratio, and
// what too little credit costs is a ridge along credit : partition, which the axes alone describe badly.
// Bit-identical on all ranks, also on different processors of IEEE 754: nothing but + - * / and sqrt, no fused
// or vector instructions (CMakeLists.txt says so to the compiler), an exponential of its own.
#pragma once

#include <array>
#include <span>
#include <vector>

namespace mlnet::schedule {

using Position = std::array<double, 2>;

struct Sample {
  Position x{};
  double y = 0;
};

struct Prediction {
  double mean = 0, variance = 0;
};

/// What the samples, at least one, say about each of `at`.
std::vector<Prediction> Predict(std::span<const Sample> samples, std::span<const Position> at);

/// By how much a measurement may be expected to exceed best + margin.
double ExpectedImprovement(const Prediction& p, double best, double margin);

/// e^x for x <= 0, to 1e-15 of itself.
double PortableExp(double x);

}  // namespace mlnet::schedule
