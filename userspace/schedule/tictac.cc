// SPDX-License-Identifier: Apache-2.0
#include "schedule/tictac.h"

#include <algorithm>

namespace mlnet::schedule {
namespace {

// A transfer of 1 for every receive, nothing for computing.
Graph WithoutTimes(Graph graph) {
  for (Operation& op : graph) op.time_ns = op.kind == Operation::Kind::kReceive ? 1 : 0;
  return graph;
}

// Sending b first delays what a unlocks by b's transfer, at most by as much as there is to compute; and the other way
// round. Not a strict weak order, so it is only ever used to find a minimum, front to back.
bool IsBefore(const ReceiveValue& a, const ReceiveValue& b) {
  const uint64_t if_a_first = std::min(b.unlocks_ns, a.own_ns);
  const uint64_t if_b_first = std::min(a.unlocks_ns, b.own_ns);
  if (if_a_first != if_b_first) return if_a_first < if_b_first;
  return a.together_ns < b.together_ns;
}

}  // namespace

std::vector<ReceiveValue> ValuesOf(const Graph& graph, const std::vector<std::vector<uint32_t>>& dependencies,
                                   std::span<const uint32_t> outstanding) {
  std::vector<ReceiveValue> values(graph.size());
  for (const uint32_t receive : outstanding) values[receive].own_ns = graph[receive].time_ns;
  std::vector<uint32_t> open;
  for (size_t i = 0; i < graph.size(); ++i) {
    if (graph[i].kind != Operation::Kind::kCompute) continue;
    open.clear();
    std::set_intersection(dependencies[i].begin(), dependencies[i].end(), outstanding.begin(), outstanding.end(),
                          std::back_inserter(open));
    if (open.size() == 1) values[open[0]].unlocks_ns += graph[i].time_ns;
    if (open.size() < 2) continue;
    uint64_t sum = 0;
    for (const uint32_t receive : open) sum += graph[receive].time_ns;
    for (const uint32_t receive : open) values[receive].together_ns = std::min(values[receive].together_ns, sum);
  }
  return values;
}

std::vector<ReceivePriority> Tic(const Graph& graph) {
  const Graph counted = WithoutTimes(graph);
  const std::vector<uint32_t> receives = ReceivesOf(graph);
  const auto values = ValuesOf(counted, DependenciesOf(counted), receives);

  std::vector<uint32_t> order = receives;
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return values[a].together_ns < values[b].together_ns; });
  std::vector<uint32_t> priority(graph.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const bool is_tie = i > 0 && values[order[i]].together_ns == values[order[i - 1]].together_ns;
    priority[order[i]] = is_tie ? priority[order[i - 1]] : static_cast<uint32_t>(i);
  }
  std::vector<ReceivePriority> result;
  for (const uint32_t receive : receives) {
    result.push_back({receive, priority[receive], values[receive].together_ns});
  }
  return result;
}

std::vector<ReceivePriority> Tac(const Graph& graph, std::vector<uint32_t> receives) {
  const auto dependencies = DependenciesOf(graph);
  std::vector<uint32_t> outstanding = receives;
  std::sort(outstanding.begin(), outstanding.end());
  std::vector<ReceivePriority> result;
  while (!receives.empty()) {
    const auto values = ValuesOf(graph, dependencies, outstanding);
    auto first = receives.begin();
    for (auto it = receives.begin() + 1; it != receives.end(); ++it) {
      if (IsBefore(values[*it], values[*first])) first = it;
    }
    const uint32_t taken = *first;
    result.push_back({taken, static_cast<uint32_t>(result.size()), values[taken].together_ns});
    receives.erase(first);
    outstanding.erase(std::lower_bound(outstanding.begin(), outstanding.end(), taken));
  }
  return result;
}

}  // namespace mlnet::schedule
