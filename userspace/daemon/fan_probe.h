// SPDX-License-Identifier: Apache-2.0
// Finds out whether multicast of every tree's root arrives at every worker host of a job, before the first result
// is sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "control/model.h"

namespace mlnet::daemon {

inline constexpr uint64_t kPingEveryMs = 20;
inline constexpr uint64_t kPingForMs = 400;  // without any news: twenty chances, loss alone does not decide

struct FanDecision {
  std::string fan;  // direct, multicast, unicast; empty: the job must fail
  std::string why;
};

/// The trees whose results come to `host` over the network: a bit each.
uint32_t ProbesFor(const control::Plan& plan, const std::string& host);

class FanProbe {
 public:
  explicit FanProbe(uint64_t now_ms) : news_ms_(now_ms) {}

  /// What to use, once it is known.
  std::optional<FanDecision> Decide(const control::JobView& view, uint64_t now_ms);
  /// Whether a PING is due; counts it as sent.
  bool IsPingDue(uint64_t now_ms);
  uint64_t num_pings() const { return num_pings_; }

 private:
  uint64_t news_ms_;  // when the last host was heard to have all of its probes
  std::string missing_;
  uint64_t last_ping_ms_ = 0;
  uint64_t num_pings_ = 0;
};

}  // namespace mlnet::daemon
