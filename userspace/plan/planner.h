// SPDX-License-Identifier: Apache-2.0
// The planner: hosts, links and a job in; trees, weights and predicted times of every shape out. A pure function, so
// daemon, simulator and mlnetctl get the same answer.
#pragma once

#include <optional>

#include "plan/model.h"

namespace mlnet::plan {

/// Candidates in the order of Shape. The fastest is chosen (the simplest of equally fast ones), or `wanted` if given.
Result<Plan> MakePlan(const Cluster& cluster, const Job& job, const Settings& settings = {},
                      std::optional<Shape> wanted = {});

/// "star", "shards", "workers", "rack", "rack-shards", "binary", "degree".
const char* NameOf(Shape shape);
std::optional<Shape> ShapeFromName(const std::string& name);
std::vector<std::string> ShapeNames();

}  // namespace mlnet::plan
