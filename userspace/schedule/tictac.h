// SPDX-License-Identifier: Apache-2.0
// TicTac's two orders for the receives of a graph, as its released code computes them.
//   TIC  timing-independent: counts transfers, knows no times; equal receives share one priority
//   TAC  timing-aware: needs the times of a profile; receives one by one what lets computing go on the most
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/graph.h"

namespace mlnet::schedule {

/// What a receive that is outstanding means to the rest.
struct ReceiveValue {
  uint64_t unlocks_ns = 0;         // P: computing that waits for this one only
  uint64_t own_ns = 0;             // M: its own transfer
  uint64_t together_ns = kInfinite;  // M+: the shortest transfer, others included, that lets some other computing begin
};

struct ReceivePriority {
  uint32_t operation = 0;
  uint32_t priority = 0;   // lower is sent earlier
  uint64_t together_ns = kInfinite;
};

/// By operation; only those of `outstanding` (sorted) mean anything.
std::vector<ReceiveValue> ValuesOf(const Graph& graph, const std::vector<std::vector<uint32_t>>& dependencies,
                                   std::span<const uint32_t> outstanding);

/// In the order of the graph's receives. The graph has passed Check.
std::vector<ReceivePriority> Tic(const Graph& graph);

/// First to last; priority is the place. `receives`: all of the graph's, in the order that decides between equals.
std::vector<ReceivePriority> Tac(const Graph& graph, std::vector<uint32_t> receives);

}  // namespace mlnet::schedule
