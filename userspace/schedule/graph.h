// SPDX-License-Identifier: Apache-2.0
// A step of training or inference as TicTac sees it: operations that receive tensors and operations that compute, with
// what each waits for. Times are nanoseconds in integers, here and in all of this folder: every rank must come to the
// same order, and sums of integers do not depend on who adds them.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "mlnet/error.h"

namespace mlnet::schedule {

struct Operation {
  enum class Kind : uint8_t { kReceive, kCompute };
  Kind kind = Kind::kCompute;
  uint64_t time_ns = 0;
  std::vector<uint32_t> after;  // what it waits for, by index, each lower than its own
};

using Graph = std::vector<Operation>;

/// "Never", "nobody".
inline constexpr uint64_t kInfinite = std::numeric_limits<uint64_t>::max();

/// Refuses operations that wait for a later one, or for themselves.
Result<void> Check(const Graph& graph);

/// The operations that receive, in the order of the graph.
std::vector<uint32_t> ReceivesOf(const Graph& graph);

/// By operation: the receives that it cannot do without, sorted. A receive's own are just itself.
std::vector<std::vector<uint32_t>> DependenciesOf(const Graph& graph);

/// One channel that receives in the given order, back to back, and one compute unit, which is not interrupted and
/// always takes what can start first (of those the lowest index). The time until all is done.
uint64_t Makespan(const Graph& graph, std::span<const uint32_t> order);

/// TicTac's E = (U - makespan) / (U - L): 1 where nothing can be faster, 0 where nothing overlaps. U: all times
/// added up; L: those of the busier of channel and compute unit. 1 where there is nothing to gain.
double Efficiency(const Graph& graph, uint64_t makespan_ns);

}  // namespace mlnet::schedule
