// SPDX-License-Identifier: Apache-2.0
#include "send_window.h"

#include <algorithm>
#include <cmath>

namespace mlnet::worker {
namespace {

constexpr double kLossTolerated = 0.04;     // on the way to the aggregator, or back
constexpr uint32_t kRoundPacketsMin = 128;  // a share of fewer says nothing
constexpr double kFloor = 4;
constexpr uint32_t kLosslessPools = 4;  // of answers without a loss: 1 % would have shown
constexpr double kMarksMemory = 16;     // rounds; 1 / DCTCP's g
// Enough for a host that does not get its processor for a while; more would only make everybody wait, urgent packets first.
constexpr uint64_t kQueuedMostNs = 20'000'000;

}  // namespace

// A packet is late at every rank when any of the n contributions or the own copy of the result is lost.
SendWindow::SendWindow(uint32_t first, uint32_t most, uint32_t lossless_most, int world_size)
    : first_(first),
      limit_(lossless_most),
      size_(std::clamp<double>(first, 1, most)),
      floor_(std::min<double>(kFloor, size_)),
      most_(most),
      lossless_most_(lossless_most),
      threshold_(most),
      tolerated_share_(1 - std::pow(1 - kLossTolerated, world_size + 1)) {}

void SendWindow::StartRound(uint64_t now_ns, uint64_t srtt_ns) {
  if (now_ns < round_ends_ns_ || (answered_in_round_ < kRoundPacketsMin && answered_in_round_ > 0)) return;
  if (answered_in_round_ > 0) marked_share_ += (static_cast<double>(marked_in_round_) / answered_in_round_ - marked_share_) / kMarksMemory;
  round_ends_ns_ = now_ns + std::max<uint64_t>(srtt_ns, 1);
  answered_in_round_ = 0;
  marked_in_round_ = 0;
  lost_in_round_ = 0;
}

// Never all at once into links that another job has just left: from the first window it doubles each round trip.
void SendWindow::SetLimit(uint32_t limit) {
  if (limit > limit_) size_ = std::min<double>(size_, std::max(limit_, first_));
  limit_ = std::max(limit, 1U);
}

void SendWindow::OnMark(uint64_t now_ns, uint64_t srtt_ns) {
  StartRound(now_ns, srtt_ns);
  ++marked_in_round_;
  answers_since_loss_ = 0;  // the queue is about to lose something
  if (now_ns < marks_count_ns_) return;
  marks_count_ns_ = now_ns + srtt_ns;
  size_ = std::max(floor_, size_ * (1 - std::min(marked_share_, 1.0) / 2));
  threshold_ = size_;
}

// Doubled beyond what a queue once overflowed at, the window would be lost as a whole: from there it grows by one.
void SendWindow::OnAnswer(uint64_t now_ns, uint64_t srtt_ns, uint64_t queued_ns, uint32_t in_flight) {
  StartRound(now_ns, srtt_ns);
  ++answered_in_round_;
  ++answers_since_loss_;
  // A window that was not full says nothing about what the path would carry.
  if (in_flight < size() || queued_ns > kQueuedMostNs) return;
  const bool is_lossless = answers_since_loss_ >= kLosslessPools * lossless_most_;
  if (is_lossless && halved_ns_ == 0) threshold_ = lossless_most_;
  size_ = std::min(is_lossless ? lossless_most_ : most_, size_ + (size_ < threshold_ ? 1.0 : 1.0 / size_));
}

// A path that lost what was beyond the other bound is not tried again.
void SendWindow::KeepRoomForRepairs() {
  answers_since_loss_ = 0;
  if (size_ <= most_) return;
  size_ = threshold_ = lossless_most_ = most_;
}

void SendWindow::OnLoss(uint64_t now_ns, uint64_t srtt_ns, uint64_t sent_ns, bool is_late) {
  if ((is_late && now_ns < late_counts_ns_) || sent_ns < halved_ns_) return;
  KeepRoomForRepairs();
  StartRound(now_ns, srtt_ns);
  ++lost_in_round_;
  if (lost_in_round_ <= tolerated_share_ * std::max(kRoundPacketsMin, answered_in_round_)) return;
  size_ = std::max(floor_, size_ / 2);
  threshold_ = size_;
  halved_ns_ = now_ns;
  lost_in_round_ = 0;
}

}  // namespace mlnet::worker
