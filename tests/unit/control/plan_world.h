// SPDX-License-Identifier: Apache-2.0
// Hosts, a job and its ranks for the tests of planning.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "control/plan.h"

namespace mlnet::control {

inline constexpr uint64_t kNow = 50'000;

inline HostRecord Host(const std::string& name, const std::string& address, bool aggregator) {
  HostRecord host;
  host.host = name;
  host.port = 28012;
  host.slots_free = 4096;
  host.running = true;
  host.heartbeat_ms = kNow;
  host.ifaces = {{"eth0", address, 24, 1500, aggregator, true}};
  return host;
}

struct World {
  std::vector<HostRecord> hosts = {Host("a1", "10.0.0.9", true), Host("a2", "10.0.0.8", true), Host("w1", "10.0.0.1", false),
                                   Host("w2", "10.0.0.2", false)};
  JobView job;
  std::vector<JobView> jobs;

  World() {
    job.job.name = "demo";
    job.job.world_size = 3;
    job.job.spec.shape = "star";
    job.members = {{1, 0, "w1", 7, true, false, 0, ""}, {1, 1, "w2", 8, true, false, 0, ""}, {1, 2, "w1", 9, true, false, 0, ""}};
  }
  HostRecord& At(const std::string& name) {
    return *std::find_if(hosts.begin(), hosts.end(), [&](const auto& h) { return h.host == name; });
  }
  Addressing addressing{"auto", *ParseGroupPrefix("239.77.0.0/16"), *ParseGroupPrefix("ff15::6d6c:0/112")};
  Result<Plan> Make() { return MakePlan({&job, &hosts, &jobs, addressing, kNow}); }
  Error Refusal() {
    const auto plan = Make();
    EXPECT_FALSE(plan);
    return plan ? Error{} : plan.error();
  }
};

}  // namespace mlnet::control
