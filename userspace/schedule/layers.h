// SPDX-License-Identifier: Apache-2.0
// The iteration of data parallel training as a timeline: backward computes the last layer first, each layer's gradient is then
// transferred over one link, and the next forward computes the first layer first, each as soon as its own transfer is in.
// From the start of backward to the end of forward; all that is transferred is needed in between, so nothing carries over.
// What overlaps is up to the order of the transfers, and these functions say how long each order takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/graph.h"

namespace mlnet::schedule {

/// Of the forward pass, first layer first. A bucket of several layers is a transfer of its first layer; the others have
/// none of their own.
struct Layer {
  uint64_t backward_ns = 0;
  uint64_t forward_ns = 0;
  uint64_t transfer_ns = 0;
};

/// What `bytes` take at a payload rate; rounded up.
uint64_t TransferNs(uint64_t bytes, uint64_t bytes_per_s);

/// When each gradient is there.
std::vector<uint64_t> ReadyTimes(std::span<const Layer> layers);

/// The end of forward when transfers end at `done_ns`.
uint64_t EndOfForward(std::span<const Layer> layers, std::span<const uint64_t> done_ns);

/// The least that any schedule of the link can reach, interrupting at will and for nothing. It is what the first layer
/// first reaches (DESIGN.md has the proof, the tests try all orders).
uint64_t BestIteration(std::span<const Layer> layers);

enum class Link {
  kPreemptive,  // at each moment the first of `order` that is ready and not yet over
  kSequential,  // exactly in that order, each to its end, waiting where one is not ready
};

/// `order` holds every layer once.
uint64_t IterationInOrder(std::span<const Layer> layers, std::span<const uint32_t> order, Link link);

/// As gradients appear, each to its end: what a framework does by itself.
uint64_t FifoIteration(std::span<const Layer> layers);

/// Forward as TicTac sees it: operations 0..n-1 receive, n..2n-1 compute, each after its own receive and the layer before.
/// When gradients are ready it does not know, so TAC and TIC order what waits, no more.
Graph ForwardGraph(std::span<const Layer> layers);

/// When the transfers of layers 0..i are over, if nothing else was ever in front of them. No schedule is earlier.
std::vector<uint64_t> PrefixDone(std::span<const Layer> layers);

}  // namespace mlnet::schedule
