// SPDX-License-Identifier: Apache-2.0
#include "schedule/order.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace mlnet::schedule {
namespace {

constexpr size_t kHeader = 3;  // voters, tensors, steps

}  // namespace

std::vector<uint32_t> FifoPriorities(size_t num_tensors) { return std::vector<uint32_t>(num_tensors, 0); }

std::vector<uint32_t> LayerPriorities(size_t num_tensors) {
  std::vector<uint32_t> priorities(num_tensors);
  std::iota(priorities.begin(), priorities.end(), 0u);
  return priorities;
}

LearnedOrder::LearnedOrder(size_t num_tensors, LearnSettings settings)
    : num_tensors_(num_tensors), settings_(settings), is_seen_(num_tensors), places_(num_tensors),
      fifo_(FifoPriorities(num_tensors)), by_number_(LayerPriorities(num_tensors)) {
  settings_.watch_steps = std::max(settings_.watch_steps, 1u);
}

void LearnedOrder::Saw(uint32_t tensor) {
  if (tensor >= num_tensors_ || is_seen_[tensor]) return;
  is_seen_[tensor] = true;
  seen_.push_back(tensor);
}

bool LearnedOrder::EndStep() {
  if (step_ >= settings_.skip_steps && step_ < vote_step()) {
    // One that was not produced stands in front of all that were: nobody is in a hurry for it.
    const size_t num_missing = num_tensors_ - seen_.size();
    for (size_t i = 0; i < seen_.size(); ++i) places_[seen_[i]] += static_cast<int64_t>(num_missing + i);
  }
  seen_.clear();
  is_seen_.assign(num_tensors_, false);
  ++step_;
  return step_ == vote_step();
}

std::vector<int64_t> LearnedOrder::Vote() const {
  std::vector<int64_t> vote = {1, static_cast<int64_t>(num_tensors_), static_cast<int64_t>(vote_step())};
  vote.insert(vote.end(), places_.begin(), places_.end());
  return vote;
}

Result<void> LearnedOrder::Agree(std::span<const int64_t> sum) {
  if (step_ < vote_step() || step_ > first_step()) {
    return Err(ErrorCode::kInvalidArgument,
               "the votes came in step " + std::to_string(step_) + ", not in " + std::to_string(vote_step()) + " to " +
                   std::to_string(first_step()),
               "raise lead_steps on all ranks");
  }
  const bool has_header = sum.size() == kHeader + num_tensors_ && sum[0] > 0;
  if (!has_header || sum[1] != sum[0] * static_cast<int64_t>(num_tensors_) ||
      sum[2] != sum[0] * static_cast<int64_t>(vote_step())) {
    return Err(ErrorCode::kMismatch, "ranks voted on different tensors or after different steps",
               "make LearnedOrder anew on all ranks at the same step");
  }
  const auto places = sum.subspan(kHeader);
  std::vector<uint32_t> by_urgency = by_number_;
  std::stable_sort(by_urgency.begin(), by_urgency.end(), [&](uint32_t a, uint32_t b) { return places[a] > places[b]; });
  priorities_.resize(num_tensors_);
  for (uint32_t i = 0; i < num_tensors_; ++i) priorities_[by_urgency[i]] = i;
  sequence_.assign(by_urgency.rbegin(), by_urgency.rend());
  is_agreed_ = true;
  return {};
}

}  // namespace mlnet::schedule
