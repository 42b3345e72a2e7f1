// SPDX-License-Identifier: Apache-2.0
// Who can reduce what: refused here, before the first rank starts, and not by one rank of one turn.
#pragma once

#include <string>
#include <vector>

#include "mlnet-perf/spec.h"

namespace mlnet::lab {

/// Who has a turn of its own in each round, and rows of its own.
struct Contender {
  std::string backend;               // mlnet, gloo, mpi
  WireType wire = WireType::kInt32;  // mlnet's

  bool IsMlnet() const { return backend == "mlnet"; }
  /// "mlnet int16", "gloo".
  std::string Name() const;
};

Result<std::vector<WireType>> ParseWires(const std::vector<std::string>& names);

/// kUnsupported names the first contender that cannot do what the spec asks for.
Result<void> CheckSupport(const std::vector<Contender>& contenders, const perf::Spec& spec);

/// Which bound holds for this contender's results: "block", "element", or "" where neither does.
std::string BoundName(const Contender& contender, const perf::Spec& spec);

}  // namespace mlnet::lab
