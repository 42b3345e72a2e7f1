// SPDX-License-Identifier: Apache-2.0
// Tuning while training goes on: a trial is some steps at one point, and all ranks change the point between the same two steps.
// A state machine that counts steps; whoever drives it measures them and agrees on the cost.
//
//   Tuner tuner({}, remembered ? std::move(*remembered) : Search({}));   // the same state on all ranks
//   each step:  core.SetPolicy(tuner.Apply(policy));                     // before its first Enqueue
//               ...
//               if (tuner.EndStep(step_ns)) tuner.Agree(AllReduceMax(tuner.cost_ns()));
//
// The maximum over ranks, because an iteration is as long as that of its slowest rank.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/policy.h"
#include "schedule/search.h"

namespace mlnet::schedule {

/// The same on all ranks.
struct TuneSteps {
  uint32_t settle_steps = 3;    // not measured: what came before still shows
  uint32_t measure_steps = 20;  // at least 1; a tenth at each end of the sorted times does not count
  uint32_t lead_steps = 0;      // whole steps that agreeing may take; 0: everybody waits for it
};

class Tuner {
 public:
  Tuner(const TuneSteps& steps, Search search);

  /// Of the current step.
  const TunePoint& point() const { return point_; }
  /// The policy with the current point in it.
  Policy Apply(Policy policy) const;
  /// After each step, with what it took here. True: agree on cost_ns() now.
  bool EndStep(uint64_t step_ns);
  /// This rank's time per step of the trial that has just been measured.
  uint64_t cost_ns() const { return cost_ns_; }
  /// What all ranks agreed on. The next point holds once lead_steps have passed since EndStep said so. Refused
  /// where nothing was to be agreed on, or where it is 0.
  Result<void> Agree(uint64_t cost_ns);
  /// The lead is over and Agree has not come: no step may begin, since on other ranks the point may have changed.
  bool must_wait() const { return is_voting_ && lead_left_ == 0; }

  bool is_settled() const { return search_.is_settled() && point_ == search_.point() && !is_voting_; }
  const Search& search() const { return search_; }

 private:
  void Begin();

  TuneSteps steps_;
  Search search_;
  TunePoint point_;
  uint64_t step_in_trial_ = 0;
  std::vector<uint64_t> times_;
  uint64_t cost_ns_ = 0;
  bool is_voting_ = false;   // measured, not agreed
  bool is_leading_ = false;  // between the end of measuring and the change
  uint32_t lead_left_ = 0;
};

}  // namespace mlnet::schedule
