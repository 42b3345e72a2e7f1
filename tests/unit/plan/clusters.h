// SPDX-License-Identifier: Apache-2.0
// Clusters and jobs that the tests of the planner share.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/planner.h"

namespace mlnet::plan {

constexpr double kGig = 1e9;

/// The papers' world: packets without headers, no latency. Times are then multiples of S/B.
inline Settings Ideal() {
  Settings s;
  s.payload_bytes = s.frame_bytes = 1;
  s.level_s = 0;
  s.ring_overhead = 1;
  return s;
}

inline Host MakeHost(const std::string& name, double bps, const std::string& rack = "") {
  return {name, rack, bps, bps, true};
}

/// n hosts w1..wn on one switch.
inline Cluster OneSwitch(size_t n, double bps) {
  Cluster c;
  for (size_t i = 1; i <= n; ++i) c.hosts.push_back(MakeHost("w" + std::to_string(i), bps));
  return c;
}

/// Hosts r1h1, r1h2, ..., r2h1, ... in racks r1, r2, ...
inline Cluster Racks(size_t racks, size_t per_rack, double bps, double oversubscription) {
  Cluster c;
  c.oversubscription = oversubscription;
  for (size_t r = 1; r <= racks; ++r) {
    for (size_t h = 1; h <= per_rack; ++h) {
      const std::string rack = "r" + std::to_string(r);
      c.hosts.push_back(MakeHost(rack + "h" + std::to_string(h), bps, rack));
    }
  }
  return c;
}

/// One rank on each of the first n hosts.
inline Job OneRankEach(const Cluster& cluster, size_t n, uint64_t bytes) {
  Job job;
  job.bytes = bytes;
  for (size_t i = 0; i < n; ++i) job.host_of_rank.push_back(cluster.hosts[i].name);
  return job;
}

inline Plan Planned(const Cluster& cluster, const Job& job, const Settings& settings = Ideal()) {
  auto plan = MakePlan(cluster, job, settings);
  EXPECT_TRUE(plan.has_value()) << (plan ? "" : plan.error().ToString());
  return plan ? *plan : Plan{};
}

inline Candidate Of(const Plan& plan, Shape shape) {
  Candidate c = plan.candidates.at(static_cast<size_t>(shape));
  EXPECT_EQ(c.shape, shape);
  EXPECT_TRUE(c.is_possible()) << NameOf(shape) << ": " << c.why_not;
  return c;
}

/// Seconds of a shape in units of S/B, for a job of `bytes` on links of `bps`.
inline double InUnits(const Candidate& c, uint64_t bytes, double bps) {
  return c.predicted.seconds / (static_cast<double>(bytes) * 8 / bps);
}

}  // namespace mlnet::plan
