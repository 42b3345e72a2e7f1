// SPDX-License-Identifier: Apache-2.0
#include "schedule/graph.h"

#include <algorithm>
#include <string>

namespace mlnet::schedule {
namespace {

bool IsReceive(const Operation& op) { return op.kind == Operation::Kind::kReceive; }

// When everything that `op` waits for is done; kInfinite while nobody knows.
uint64_t ReadyAt(const Operation& op, const std::vector<uint64_t>& done_at) {
  uint64_t ready = 0;
  for (const uint32_t before : op.after) ready = std::max(ready, done_at[before]);
  return ready;
}

}  // namespace

Result<void> Check(const Graph& graph) {
  for (size_t i = 0; i < graph.size(); ++i) {
    for (const uint32_t before : graph[i].after) {
      if (before >= i) {
        return Err(ErrorCode::kInvalidArgument,
                   "operation " + std::to_string(i) + " waits for operation " + std::to_string(before),
                   "list operations after those that they wait for");
      }
    }
  }
  return {};
}

std::vector<uint32_t> ReceivesOf(const Graph& graph) {
  std::vector<uint32_t> receives;
  for (uint32_t i = 0; i < graph.size(); ++i) {
    if (IsReceive(graph[i])) receives.push_back(i);
  }
  return receives;
}

std::vector<std::vector<uint32_t>> DependenciesOf(const Graph& graph) {
  std::vector<std::vector<uint32_t>> dependencies(graph.size());
  for (uint32_t i = 0; i < graph.size(); ++i) {
    auto& own = dependencies[i];
    if (IsReceive(graph[i])) {
      own = {i};
      continue;
    }
    for (const uint32_t before : graph[i].after) {
      own.insert(own.end(), dependencies[before].begin(), dependencies[before].end());
    }
    std::sort(own.begin(), own.end());
    own.erase(std::unique(own.begin(), own.end()), own.end());
  }
  return dependencies;
}

uint64_t Makespan(const Graph& graph, std::span<const uint32_t> order) {
  std::vector<uint64_t> done_at(graph.size(), kInfinite);
  uint64_t channel = 0;
  for (const uint32_t receive : order) done_at[receive] = channel += graph[receive].time_ns;

  uint64_t unit = 0;
  for (;;) {
    size_t next = graph.size();
    uint64_t next_start = kInfinite;
    for (size_t i = 0; i < graph.size(); ++i) {
      if (IsReceive(graph[i]) || done_at[i] != kInfinite) continue;
      const uint64_t start = std::max(unit, ReadyAt(graph[i], done_at));
      if (start < next_start) {
        next = i;
        next_start = start;
      }
    }
    if (next == graph.size()) break;
    done_at[next] = unit = next_start + graph[next].time_ns;
  }
  return std::max(channel, unit);
}

double Efficiency(const Graph& graph, uint64_t makespan_ns) {
  uint64_t channel = 0, unit = 0;
  for (const Operation& op : graph) (IsReceive(op) ? channel : unit) += op.time_ns;
  const uint64_t shorter = std::min(channel, unit);
  if (shorter == 0) return 1;
  return (static_cast<double>(channel + unit) - static_cast<double>(makespan_ns)) / static_cast<double>(shorter);
}

}  // namespace mlnet::schedule
