// SPDX-License-Identifier: Apache-2.0
#include "schedule/layers.h"

#include <algorithm>
#include <numeric>

namespace mlnet::schedule {
namespace {

std::vector<uint64_t> SequentialDone(std::span<const Layer> layers, std::span<const uint32_t> order) {
  const auto ready = ReadyTimes(layers);
  std::vector<uint64_t> done(layers.size());
  uint64_t now = 0;
  for (const uint32_t i : order) {
    now = std::max(now, ready[i]) + layers[i].transfer_ns;
    done[i] = now;
  }
  return done;
}

// From event to event: the first of the order that is ready has the link until it ends or a gradient appears.
std::vector<uint64_t> PreemptiveDone(std::span<const Layer> layers, std::span<const uint32_t> order) {
  const auto ready = ReadyTimes(layers);
  std::vector<uint64_t> left(layers.size()), done(layers.size(), kInfinite);
  for (size_t i = 0; i < layers.size(); ++i) left[i] = layers[i].transfer_ns;
  uint64_t now = 0;
  for (;;) {
    uint64_t next_ready = kInfinite;
    for (const uint64_t r : ready) {
      if (r > now) next_ready = std::min(next_ready, r);
    }
    const auto it = std::find_if(order.begin(), order.end(),
                                 [&](uint32_t i) { return done[i] == kInfinite && ready[i] <= now; });
    if (it == order.end()) {
      if (next_ready == kInfinite) return done;
      now = next_ready;
      continue;
    }
    const uint64_t sent = std::min(left[*it], next_ready - now);
    now += sent;
    left[*it] -= sent;
    if (left[*it] == 0) done[*it] = now;
  }
}

}  // namespace

uint64_t TransferNs(uint64_t bytes, uint64_t bytes_per_s) {
  constexpr uint64_t kNsPerS = 1000000000;
  const auto product = static_cast<unsigned __int128>(bytes) * kNsPerS;
  return static_cast<uint64_t>((product + bytes_per_s - 1) / bytes_per_s);
}

std::vector<uint64_t> ReadyTimes(std::span<const Layer> layers) {
  std::vector<uint64_t> ready(layers.size());
  uint64_t now = 0;
  for (size_t i = layers.size(); i-- > 0;) ready[i] = now += layers[i].backward_ns;
  return ready;
}

uint64_t EndOfForward(std::span<const Layer> layers, std::span<const uint64_t> done_ns) {
  uint64_t now = 0;
  for (const Layer& layer : layers) now += layer.backward_ns;
  for (size_t i = 0; i < layers.size(); ++i) now = std::max(now, done_ns[i]) + layers[i].forward_ns;
  return now;
}

Graph ForwardGraph(std::span<const Layer> layers) {
  const auto n = static_cast<uint32_t>(layers.size());
  Graph graph;
  for (const Layer& layer : layers) graph.push_back({Operation::Kind::kReceive, layer.transfer_ns, {}});
  for (uint32_t i = 0; i < n; ++i) {
    graph.push_back({Operation::Kind::kCompute, layers[i].forward_ns, {i}});
    if (i > 0) graph.back().after.push_back(n + i - 1);
  }
  return graph;
}

std::vector<uint64_t> PrefixDone(std::span<const Layer> layers) {
  const auto ready = ReadyTimes(layers);
  std::vector<uint64_t> done(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    // Layer i is the earliest of 0..i to be ready, layer 0 the latest.
    uint64_t now = 0;
    for (size_t k = i + 1; k-- > 0;) now = std::max(now, ready[k]) + layers[k].transfer_ns;
    done[i] = now;
  }
  return done;
}

uint64_t BestIteration(std::span<const Layer> layers) { return EndOfForward(layers, PrefixDone(layers)); }

uint64_t IterationInOrder(std::span<const Layer> layers, std::span<const uint32_t> order, Link link) {
  const bool is_preemptive = link == Link::kPreemptive;
  return EndOfForward(layers, is_preemptive ? PreemptiveDone(layers, order) : SequentialDone(layers, order));
}

uint64_t FifoIteration(std::span<const Layer> layers) {
  std::vector<uint32_t> order(layers.size());
  std::iota(order.rbegin(), order.rend(), 0u);
  return IterationInOrder(layers, order, Link::kSequential);
}

}  // namespace mlnet::schedule
