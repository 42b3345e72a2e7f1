// SPDX-License-Identifier: Apache-2.0
#include "schedule/class_map.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "schedule/graph.h"

namespace mlnet::schedule {
namespace {

// A level of layers a..b has all of its transfers when those of 0..b are over, its most urgent one last. So forward
// cannot go on at a before that, and from there it takes at least the rest of forward.
class Borders {
 public:
  explicit Borders(std::span<const Layer> layers)
      : done_(PrefixDone(layers)), forward_left_(layers.size() + 1), done_sum_(layers.size() + 1) {
    for (size_t i = layers.size(); i-- > 0;) forward_left_[i] = forward_left_[i + 1] + layers[i].forward_ns;
    for (size_t i = 0; i < layers.size(); ++i) done_sum_[i + 1] = done_sum_[i] + done_[i];
  }

  size_t size() const { return done_.size(); }
  uint64_t End(size_t a, size_t b) const { return done_[b] + forward_left_[a]; }
  // Added up over the layers: how much later than in the best order.
  uint64_t Waiting(size_t a, size_t b) const { return (b - a + 1) * done_[b] - (done_sum_[b + 1] - done_sum_[a]); }

 private:
  std::vector<uint64_t> done_, forward_left_, done_sum_;
};

// Cuts 0..n-1 into exactly `num_levels` runs, with the least `Join(cost of the others, Cost(a, b))`. The last of each run.
template <typename Cost, typename Join>
std::vector<size_t> CutInto(size_t n, size_t num_levels, Cost cost, Join join, uint64_t* least) {
  std::vector<std::vector<uint64_t>> best(num_levels, std::vector<uint64_t>(n, kInfinite));
  std::vector<std::vector<size_t>> first(num_levels, std::vector<size_t>(n, 0));
  for (size_t b = 0; b < n; ++b) best[0][b] = cost(0, b);
  for (size_t level = 1; level < num_levels; ++level) {
    for (size_t b = level; b < n; ++b) {
      for (size_t a = level; a <= b; ++a) {
        const uint64_t before = best[level - 1][a - 1], own = cost(a, b);
        if (before == kInfinite || own == kInfinite) continue;
        const uint64_t all = join(before, own);
        if (all >= best[level][b]) continue;
        best[level][b] = all;
        first[level][b] = a;
      }
    }
  }
  *least = best[num_levels - 1][n - 1];
  std::vector<size_t> last(num_levels);
  size_t b = n - 1;
  for (size_t level = num_levels; level-- > 0;) {
    last[level] = b;
    b = first[level][b] - 1;
  }
  return last;
}

std::vector<size_t> BestCut(std::span<const Layer> layers, size_t num_levels) {
  const Borders borders(layers);
  num_levels = std::clamp<size_t>(num_levels, 1, std::min(kLevelsMax, borders.size()));
  const auto end = [&](size_t a, size_t b) { return borders.End(a, b); };
  uint64_t shortest = 0, waiting = 0;
  CutInto(borders.size(), num_levels, end, [](uint64_t x, uint64_t y) { return std::max(x, y); }, &shortest);
  const auto wait = [&](size_t a, size_t b) { return borders.End(a, b) <= shortest ? borders.Waiting(a, b) : kInfinite; };
  return CutInto(borders.size(), num_levels, wait, [](uint64_t x, uint64_t y) { return x + y; }, &waiting);
}

}  // namespace

ClassMap MapLayers(std::span<const Layer> layers, size_t num_levels) {
  if (layers.empty()) return {};
  const auto last = BestCut(layers, num_levels);
  ClassMap map;
  map.num_levels = last.size();
  for (size_t level = 0; level < last.size(); ++level) map.last_priority[level] = static_cast<uint32_t>(last[level]);
  map.last_priority[map.num_levels - 1] = std::numeric_limits<uint32_t>::max();
  return map;
}

ClassMap MapBytes(std::span<const TensorDemand> tensors, size_t num_levels) {
  std::map<uint32_t, uint64_t> bytes_of;
  uint64_t bytes = 0;
  for (const TensorDemand& tensor : tensors) {
    bytes_of[tensor.priority] += tensor.bytes;
    bytes += tensor.bytes;
  }
  std::vector<Layer> layers;
  std::vector<uint32_t> priorities;
  for (const auto& [priority, own] : bytes_of) {
    layers.push_back({.backward_ns = 0, .forward_ns = bytes / bytes_of.size(), .transfer_ns = own});
    priorities.push_back(priority);
  }
  ClassMap map = MapLayers(layers, num_levels);
  for (size_t level = 0; level + 1 < map.num_levels; ++level) {
    map.last_priority[level] = priorities[map.last_priority[level]];
  }
  return map;
}

uint64_t IterationInLevels(std::span<const Layer> layers, const ClassMap& map) {
  std::vector<uint32_t> order(layers.size());
  std::iota(order.rbegin(), order.rend(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return map.LevelOf(a) < map.LevelOf(b); });
  return IterationInOrder(layers, order, Link::kPreemptive);
}

}  // namespace mlnet::schedule
