// SPDX-License-Identifier: Apache-2.0
#include "daemon/fan_probe.h"

#include <algorithm>

#include "control/plan.h"

namespace mlnet::daemon {
namespace {

std::string HostsWithoutProbe(const control::JobView& view) {
  std::string missing;
  for (const std::string& host : control::WorkerHosts(view.job.plan)) {
    const bool seen = std::any_of(view.hosts.begin(), view.hosts.end(),
                                  [&](const auto& h) { return h.host == host && h.multicast_seen; });
    if (!seen) missing += (missing.empty() ? "" : ", ") + host;
  }
  return missing;
}

}  // namespace

std::optional<FanDecision> FanProbe::Decide(const control::JobView& view, uint64_t now_ms) const {
  if (control::WorkerHosts(view.job.plan).size() < 2) return FanDecision{"direct", "all ranks are on one host"};
  if (view.job.spec.multicast == "off") return FanDecision{"unicast", "multicast = \"off\""};
  const std::string missing = HostsWithoutProbe(view);
  if (missing.empty()) return FanDecision{"multicast", "the probe to " + view.job.plan.group + " arrived on all hosts"};
  if (now_ms < started_ms_ + kPingForMs) return std::nullopt;
  return FanDecision{view.job.spec.multicast == "on" ? "" : "unicast",
                     "the probe to " + view.job.plan.group + " did not arrive on: " + missing};
}

bool FanProbe::IsPingDue(uint64_t now_ms) {
  if (now_ms < last_ping_ms_ + kPingEveryMs) return false;
  last_ping_ms_ = now_ms;
  ++num_pings_;
  return true;
}

}  // namespace mlnet::daemon
