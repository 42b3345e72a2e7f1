// SPDX-License-Identifier: Apache-2.0
// A plan as text, JSON and Graphviz.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "plan/model.h"

namespace mlnet::plan {

/// The candidates and rings as a table, the bound, and the reason for the choice.
std::string RenderText(const Plan& plan);

/// Everything; hosts by name. Schema mlnet.plan/1.
nlohmann::json RenderJson(const Plan& plan, const Cluster& cluster, const Job& job);

/// The chosen trees for dot(1): one cluster per tree, edges from children to parents.
std::string RenderDot(const Plan& plan, const Cluster& cluster, const Job& job);

/// "1.73 s", "12.4 ms", "80.0 us".
std::string SecondsText(double seconds);

}  // namespace mlnet::plan
