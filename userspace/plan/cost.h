// SPDX-License-Identifier: Apache-2.0
// What trees cost: bytes on every link direction, and the time that follows. Formulas in DESIGN.md.
#pragma once

#include "plan/site.h"

namespace mlnet::plan {

/// Contributions (units of S) on each of Site::links when `tree` carries the whole job.
std::vector<double> LoadsOf(const Site& site, const Tree& tree);

/// Sums on the longest way from a rank to the root; a host's own ranks are one way more where it sums several.
int LevelsOf(const Site& site, const Tree& tree);

/// Time and bytes of trees whose weights add up to 1.
Prediction Predict(const Site& site, const std::vector<Tree>& trees);

/// The same for a load that is known already: contributions per link, and seconds of latency.
Prediction PredictLoads(const Site& site, const std::vector<double>& bytes_on, double latency_s);

/// One contribution out and one result in, for the slowest worker host.
double BoundSeconds(const Site& site);

/// A ring over the ranks in this order of hosts: 2(p-1)/p of the float32 bytes on every hop that leaves a host.
Ring RingOf(const Site& site, const std::vector<size_t>& host_of_rank, std::string order);

/// In rank order, and where there are racks, taking them in turn.
std::vector<Ring> RingsOf(const Site& site);

}  // namespace mlnet::plan
