// SPDX-License-Identifier: Apache-2.0
#include "retransmit.h"

namespace mlnet::worker {

void RttEstimator::NoteLong(uint64_t rtt_ns) {
  last_ns_[last_at_++ % last_ns_.size()] = rtt_ns;
  longest_ns_.Add(*std::min_element(last_ns_.begin(), last_ns_.end()));
}

void RttEstimator::Sample(uint64_t rtt_ns) {
  shift_ = 0;
  samples_since_loss_ = std::min(samples_since_loss_ + 1, kLosslessSamples);
  shortest_ns_.Add(rtt_ns);
  NoteLong(rtt_ns);
  least_ns_ = std::min(least_ns_, rtt_ns);
  if (!has_sample_) {
    has_sample_ = true;
    srtt_ns_ = rtt_ns;
    var_ns_ = rtt_ns / 2;
    return;
  }
  const uint64_t distance = rtt_ns > srtt_ns_ ? rtt_ns - srtt_ns_ : srtt_ns_ - rtt_ns;
  var_ns_ = (3 * var_ns_ + distance) / 4;
  srtt_ns_ = (7 * srtt_ns_ + rtt_ns) / 8;
}

void Overtaken::OnAnswer(uint64_t order) {
  if (order <= latest_[0]) return;
  latest_[0] = order;
  std::sort(latest_.begin(), latest_.end());
}

}  // namespace mlnet::worker
