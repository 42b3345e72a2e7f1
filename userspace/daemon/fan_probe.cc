// SPDX-License-Identifier: Apache-2.0
#include "daemon/fan_probe.h"

#include <algorithm>

#include "control/plan.h"
#include "control/tree.h"

namespace mlnet::daemon {
namespace {

// One host gets results from a root that is not itself: no multicast is needed.
bool HasOneReceiver(const control::Plan& plan) {
  return std::all_of(plan.trees.begin(), plan.trees.end(), [](const control::PlanTree& tree) { return tree.nodes.size() <= 2; });
}

std::string HostsWithoutProbe(const control::JobView& view) {
  std::string missing;
  for (const std::string& host : control::HostsOf(view.job.plan)) {
    const auto record = std::find_if(view.hosts.begin(), view.hosts.end(), [&](const auto& h) { return h.host == host; });
    const uint32_t seen = record == view.hosts.end() ? 0 : record->multicast_seen;
    if ((seen & ProbesFor(view.job.plan, host)) != ProbesFor(view.job.plan, host)) missing += (missing.empty() ? "" : ", ") + host;
  }
  return missing;
}

}  // namespace

uint32_t ProbesFor(const control::Plan& plan, const std::string& host) {
  uint32_t trees = 0;
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    const auto at = FindNode(plan, t, host);
    if (at && *at != 0) trees |= uint32_t{1} << t;
  }
  return trees;
}

std::optional<FanDecision> FanProbe::Decide(const control::JobView& view, uint64_t now_ms) {
  if (HasOneReceiver(view.job.plan)) return FanDecision{"direct", "no result goes to more than one other host"};
  if (view.job.spec.multicast == "off") return FanDecision{"unicast", "multicast = \"off\""};
  const std::string missing = HostsWithoutProbe(view);
  if (missing.empty()) return FanDecision{"multicast", "the probe to " + view.job.plan.group + " arrived on all hosts"};
  if (missing != missing_) {
    missing_ = missing;
    news_ms_ = now_ms;
  }
  if (now_ms < news_ms_ + kPingForMs) return std::nullopt;
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
