// SPDX-License-Identifier: Apache-2.0
// How much of a job each of several trees carries.
#pragma once

#include <vector>

namespace mlnet::plan {

/// `seconds[t][l]`: time link l needs when tree t carries the whole job. Returns weights, which add up to 1, that make
/// the busiest link's time, max over l of sum over t of weight[t] * seconds[t][l], as small as it can be. Trees that
/// are alike get equal weights; a tree that would carry next to nothing gets 0.
std::vector<double> BalanceWeights(const std::vector<std::vector<double>>& seconds);

}  // namespace mlnet::plan
