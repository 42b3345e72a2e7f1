// SPDX-License-Identifier: Apache-2.0
// The topology file is read by the lab and by the planner's command; both refuse keys that neither knows.
#pragma once

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <set>
#include <string>

#include "mlnet/error.h"

namespace mlnet::lab {

// A key of the file that no version of the format knows is a typing error, never ignored; so is one that stands there twice.
inline Result<void> CheckKeys(const YAML::Node& node, const std::string& where, const std::set<std::string>& known) {
  if (!node.IsMap()) return Err(ErrorCode::kInvalidArgument, fmt::format("{} must be a mapping", where));
  std::set<std::string> seen;
  for (const auto& item : node) {
    const auto key = item.first.as<std::string>();
    if (!seen.insert(key).second) return Err(ErrorCode::kInvalidArgument, fmt::format("{}: key '{}' is there twice", where, key));
    if (known.contains(key)) continue;
    return Err(ErrorCode::kInvalidArgument, fmt::format("{}: unknown key '{}'", where, key),
               fmt::format("known keys: {}", fmt::join(known, ", ")));
  }
  return {};
}

}  // namespace mlnet::lab
