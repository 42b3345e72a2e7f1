// SPDX-License-Identifier: Apache-2.0
// Stage 7 of the tensor path: when a packet is sent again. Only ranks have timers (DESIGN section 4).
//   RttEstimator  RFC 6298 with the job's bounds, the upper one not below two round trips, and not less than several
//                 of the newest round trips in a row took; retried packets give no sample (Karn), nor those on
//                 whose way the timer ran out
//   Overtaken     three packets sent later are answered already: do not wait for the timer
//   probe_ns      a silence longer than usual: the oldest packet asks once, long before its timer runs out
//   RetryGate     after a timeout, one packet asks how things are; answers let more follow
// Not here: how much may be sent (send_window.h), what is sent (packetize.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>

namespace mlnet::worker {

/// The extreme by `Better` (std::less<>: the least) of the newest `run` to 2 * `run` values; `none` while there are none.
template <typename Better>
class OfNewest {
 public:
  OfNewest(uint32_t run, uint64_t none) : run_(run), none_(none) {}

  void Add(uint64_t value) {
    if (count_++ == run_) {
      count_ = 1;
      runs_ = {none_, runs_[0]};
    }
    if (Better{}(value, runs_[0])) runs_[0] = value;
  }
  uint64_t Get() const { return Better{}(runs_[0], runs_[1]) ? runs_[0] : runs_[1]; }

 private:
  uint32_t run_;
  uint64_t none_;
  uint32_t count_ = 0;
  std::array<uint64_t, 2> runs_{none_, none_};  // the current one, the one before
};

class RttEstimator {
 public:
  RttEstimator(uint64_t min_ns, uint64_t max_ns) { SetBounds(min_ns, max_ns); }

  void SetBounds(uint64_t min_ns, uint64_t max_ns) {
    min_ns_ = std::max<uint64_t>(min_ns, 1);
    max_ns_ = std::max(max_ns, min_ns_);
  }
  /// A round trip of a packet that was sent once. Ends a back-off.
  void Sample(uint64_t rtt_ns);
  /// The same of a packet on whose way the timer ran out: it may have waited for the repairs of others, or in the pause of a shaper.
  void Wait(uint64_t rtt_ns) { NoteLong(std::min(rtt_ns, kPauseMostNs)); }
  /// A packet was lost: from here on round trips may hold the repairs of others, and are no measure of queues.
  void OnLoss() { samples_since_loss_ = 0; }
  /// A timeout: the next one waits twice as long.
  void BackOff() { shift_ = std::min(shift_ + 1, kShiftMax); }

  uint64_t srtt_ns() const { return has_sample_ ? srtt_ns_ : min_ns_; }
  uint64_t rto_ns() const { return rto_ns(shift_); }
  /// How long a silence is normal: after it, one packet asks, long before the timeout (as TCP's tail
  /// loss probe does).
  uint64_t probe_ns() const {
    return has_sample_ ? std::max(2 * srtt_ns_, srtt_ns_ + 4 * var_ns_) : rto_ns();
  }
  /// The shortest of the newest round trips: what the path takes when no other rank is waited for.
  uint64_t path_ns() const { return has_sample_ ? shortest_ns_.Get() : min_ns_; }
  /// How much longer round trips take than the shortest one ever did: queues, or other ranks.
  uint64_t queued_ns() const { return has_sample_ && srtt_ns_ > least_ns_ ? srtt_ns_ - least_ns_ : 0; }
  /// The timeout without the estimator's own back-off, doubled `shift` times.
  uint64_t rto_ns(unsigned shift) const {
    return std::min(upper_ns(), base_rto_ns() << std::min(shift, kShiftMax));
  }

 private:
  static constexpr unsigned kShiftMax = 16;
  static constexpr uint32_t kRunSamples = 32;
  static constexpr uint32_t kLongRunSamples = 64;  // some more than a bucket's burst has packets
  static constexpr uint64_t kPauseMostNs = 10'000'000;  // of a shaper
  static constexpr uint64_t kFullQueuesFactor = 5;  // of the upper bound
  static constexpr uint32_t kLosslessSamples = 64;
  static constexpr uint64_t kFirstRtoFactor = 10;  // of the lower bound, before the first sample

  void NoteLong(uint64_t rtt_ns);
  uint64_t base_rto_ns() const {
    if (!has_sample_) return std::clamp(kFirstRtoFactor * min_ns_, min_ns_, upper_ns());
    // The averages forget within a window what a link does that lets bursts through and then nothing (a shaper's token bucket).
    return std::clamp(std::max(srtt_ns_ + 4 * var_ns_, longest_ns_.Get() + min_ns_), min_ns_, upper_ns());
  }
  /// The job's bound; but where nothing is lost, not below two round trips: with full queues every packet would be sent
  /// twice. Within reason, as a round trip may also have been the wait for a slow rank.
  uint64_t upper_ns() const {
    return samples_since_loss_ < kLosslessSamples ? max_ns_ : std::max(max_ns_, std::min(2 * srtt_ns_, kFullQueuesFactor * max_ns_));
  }

  uint64_t min_ns_ = 1;
  uint64_t max_ns_ = 1;
  uint64_t srtt_ns_ = 0;
  uint64_t var_ns_ = 0;
  uint64_t least_ns_ = UINT64_MAX;  // of all samples
  OfNewest<std::less<>> shortest_ns_{kRunSamples, UINT64_MAX};
  OfNewest<std::greater<>> longest_ns_{kLongRunSamples, 0};  // that four in a row reached: one alone waited for a repair
  std::array<uint64_t, 4> last_ns_{};                        // samples, in a ring
  uint32_t last_at_ = 0;
  uint32_t samples_since_loss_ = 0;
  unsigned shift_ = 0;
  bool has_sample_ = false;
};

/// Every transmission has a number that grows; the three largest that were answered at the first attempt
/// are enough to know.
class Overtaken {
 public:
  void OnAnswer(uint64_t order);
  bool IsOvertaken(uint64_t order) const { return latest_[0] > order; }

 private:
  std::array<uint64_t, 3> latest_{};  // ascending; orders start at 1
};

class RetryGate {
 public:
  bool IsOpen(uint64_t now_ns) const { return now_ns >= opens_ns_; }
  /// The packet that asks goes out; the next may at `opens_ns`.
  void CloseUntil(uint64_t opens_ns) {
    opens_ns_ = opens_ns;
    tokens_ = 0;
  }
  /// While closed: whether one more may be sent, as many as answers allow.
  bool TakeToken() { return tokens_ > 0 && tokens_-- > 0; }
  /// A packet was answered: the path works, two more may follow.
  void OnAnswer() { tokens_ = std::min(tokens_ + 2, kTokensMax); }
  uint64_t opens_ns() const { return opens_ns_; }

 private:
  static constexpr uint32_t kTokensMax = 32;
  uint32_t tokens_ = 0;
  uint64_t opens_ns_ = 0;
};

}  // namespace mlnet::worker
