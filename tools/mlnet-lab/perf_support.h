// SPDX-License-Identifier: Apache-2.0
// Who can reduce what: refused here, before the first rank starts, and not by one rank of one turn.
#pragma once

#include <string>
#include <vector>

#include "mlnet-perf/spec.h"
#include "topology.h"

namespace mlnet::lab {

/// Who has a turn of its own in each round, and rows of its own.
struct Contender {
  std::string backend;               // mlnet, gloo, gloo-fp16, mpi
  WireType wire = WireType::kInt32;  // mlnet's
  std::string shape{};               // of mlnet's trees; empty: as the daemon chooses
  std::string placement = "racks";   // of ranks on hosts

  bool IsMlnet() const { return backend == "mlnet"; }
  /// "mlnet int16 star", "gloo", "gloo interleaved".
  std::string Name() const;
};

Result<std::vector<WireType>> ParseWires(const std::vector<std::string>& names);

/// kUnsupported names the first contender that cannot do what the spec asks for.
Result<void> CheckSupport(const std::vector<Contender>& contenders, const perf::Spec& spec);

/// Rank 0 is on the first of them, and so on. "racks": one rack after the other, as the topology has them;
/// "interleaved": the first host of each rack, then the second of each. Hosts in the core count as a rack.
std::vector<Host> PlaceHosts(const std::vector<Host>& workers, const std::string& placement);

/// Which bound holds for this contender's results: "block", "element", or "" where neither does.
std::string BoundName(const Contender& contender, const perf::Spec& spec);

}  // namespace mlnet::lab
