// SPDX-License-Identifier: Apache-2.0
// Priorities of a model's tensors where nobody has a graph: lower is more urgent, as everywhere in this folder.
//   FIFO     all the same: the sequence alone decides (what SwitchML does)
//   layer    the place in the forward pass (P3, ByteScheduler)
//   learned  the same without asking the model: backward goes the way that forward came, so the gradient that is
//            produced last belongs to the layer that is needed first
// What a rank sees is not what another sees: threads and devices let gradients change places. So each rank watches a
// few steps and votes; votes are sums of places, and the sum over all ranks gives all of them the same order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mlnet/error.h"

namespace mlnet::schedule {

std::vector<uint32_t> FifoPriorities(size_t num_tensors);
/// For tensors numbered as forward needs them.
std::vector<uint32_t> LayerPriorities(size_t num_tensors);

/// The same on all ranks.
struct LearnSettings {
  uint32_t skip_steps = 2;   // DDP arranges its buckets anew after the first step
  uint32_t watch_steps = 3;  // at least 1
  uint32_t lead_steps = 0;   // whole steps that the vote may take; 0: everybody waits for it
};

/// The caller makes it anew on all ranks at the same step when the tensors change. Not thread-safe.
///
///   for each gradient (or bucket) of a step:  learned.Saw(tensor);
///   if (learned.EndStep()) learned.Agree(AllReduceSum(learned.Vote()));     // before first_step() begins
///   from step first_step() on, priorities() and sequence() are the learned ones on all ranks
class LearnedOrder {
 public:
  LearnedOrder(size_t num_tensors, LearnSettings settings);

  /// Produced in this step. Of several times in one step the first one counts.
  void Saw(uint32_t tensor);
  /// True once, on all ranks after the same step: vote now.
  bool EndStep();
  /// Header (voters, tensors, steps) and the sum of places of each tensor.
  std::vector<int64_t> Vote() const;
  /// The sum of all ranks' votes. Refused, on all ranks alike, where they did not vote on the same; the order stays
  /// FIFO then. Refused too before the vote and after first_step(), since others may have changed in time.
  Result<void> Agree(std::span<const int64_t> sum);

  /// Known from the start: the first step, counted from 0, in which the learned order holds.
  uint64_t first_step() const { return vote_step() + settings_.lead_steps; }
  uint64_t step() const { return step_; }
  /// The learned order holds in the current step.
  bool is_in_force() const { return is_agreed_ && step_ >= first_step(); }
  /// By tensor; FIFO before.
  const std::vector<uint32_t>& priorities() const { return is_in_force() ? priorities_ : fifo_; }
  /// The tensors as they are produced, which is the order to enqueue them in; by number before.
  const std::vector<uint32_t>& sequence() const { return is_in_force() ? sequence_ : by_number_; }

 private:
  uint64_t vote_step() const { return uint64_t{settings_.skip_steps} + settings_.watch_steps; }

  size_t num_tensors_;
  LearnSettings settings_;
  uint64_t step_ = 0;
  std::vector<uint32_t> seen_;      // in this step
  std::vector<bool> is_seen_;
  std::vector<int64_t> places_;     // summed over the steps watched
  bool is_agreed_ = false;
  std::vector<uint32_t> fifo_, by_number_, priorities_, sequence_;
};

}  // namespace mlnet::schedule
