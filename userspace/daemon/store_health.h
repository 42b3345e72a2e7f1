// SPDX-License-Identifier: Apache-2.0
// Whether a remote store answers, and what an outage means for heartbeats: while nobody could write one, nobody's
// heartbeat is old. Pure but for a lock: the loop and the thread that watches share it.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "control/model.h"
#include "control/plan.h"

namespace mlnet::daemon {

/// A host other than `own` whose heartbeat is old, perhaps only because of an outage that ended before this daemon could
/// see it: who lives has as long to write a new one as after an outage that was seen. Nullptr: heartbeats are what they are.
inline const control::HostRecord* NotHeardYet(const std::vector<control::HostRecord>& hosts, const std::string& own,
                                              uint64_t started_ms, uint64_t now_ms) {
  if (now_ms > started_ms + control::kHeartbeatStaleMs) return nullptr;
  for (const control::HostRecord& host : hosts) {
    if (host.host != own && host.running && now_ms > host.heartbeat_ms + control::kHeartbeatStaleMs) return &host;
  }
  return nullptr;
}

class StoreHealth {
 public:
  /// True where an outage began.
  bool MarkDown(const std::string& why, uint64_t now_ms) {
    const std::lock_guard lock(mutex_);
    if (!why_.empty()) return false;
    why_ = why;
    // An outage soon after another one: nobody needs to have found the time between for a heartbeat.
    if (down_ms_ == 0 || now_ms > up_ms_ + control::kHeartbeatStaleMs) down_ms_ = now_ms;
    return true;
  }

  /// True where an outage ended.
  bool MarkUp(uint64_t now_ms) {
    const std::lock_guard lock(mutex_);
    if (why_.empty()) return false;
    why_.clear();
    up_ms_ = now_ms;
    return true;
  }

  /// As first seen of this outage, so that it can be compared; empty: the store answers.
  std::string Outage() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }

  /// A heartbeat as it is to be judged: who lived when the last outage began has from its end on to show that it
  /// still does. Who was dead by then stays dead.
  uint64_t Graced(uint64_t heartbeat_ms) const {
    const std::lock_guard lock(mutex_);
    const bool lived = down_ms_ != 0 && heartbeat_ms + control::kHeartbeatStaleMs >= down_ms_;
    return lived && heartbeat_ms < up_ms_ ? up_ms_ : heartbeat_ms;
  }

 private:
  mutable std::mutex mutex_;
  std::string why_;
  uint64_t down_ms_ = 0;  // when the last outage began; 0: there was none
  uint64_t up_ms_ = 0;    // when it ended
};

}  // namespace mlnet::daemon
