// SPDX-License-Identifier: Apache-2.0
// Who sums a job and who is below whom: a pure function of the job, its members and the hosts.
// The trees are the planner's (plan/planner.h), which also chooses among the shapes where the rates of all links are
// known. Where they are not, `auto` is all aggregators without ranks of the job, each with a share of every large call;
// or, where there are none, the hosts of the ranks.
#pragma once

#include <optional>
#include <vector>

#include "control/addressing.h"
#include "control/model.h"
#include "mlnet/error.h"
#include "mlnet/wire.h"
#include "plan/model.h"

namespace mlnet::control {

inline constexpr uint64_t kHeartbeatStaleMs = 10'000;

struct Numbering {
  uint16_t job_id = 0;
  uint16_t epoch = 0;
};

struct PlanInput {
  const JobView* job = nullptr;
  const std::vector<HostRecord>* hosts = nullptr;
  const std::vector<JobView>* jobs = nullptr;  // all, to spread jobs over the aggregators
  Addressing addressing;
  uint64_t now_ms = 0;
};

/// Everything but job id and epoch; the error says which hosts were considered and why not.
Result<Plan> MakePlan(const PlanInput& input);

/// Whether some host could sum the job, had it the slots.
bool CouldBeSummed(const PlanInput& input);
/// Of a job that begins in the ring: hosts of ranks alone, whose kernels sum nothing. The only tree's root is nobody.
Result<Plan> MakeRingPlan(const PlanInput& input);
/// Whether a plan is one of these.
bool HasNobodyToSum(const Plan& plan);

/// What the planner is asked for that plan: for people who want to see the other candidates.
struct PlannerTask {
  plan::Cluster cluster;
  plan::Job job;
  int mtu = 0;  // the smallest of the hosts' NICs
  bool has_rates = false;  // else all links are taken for 10 Gb/s
  std::optional<plan::Shape> wanted;  // asked for, or the rule where rates are not known; none: the fastest
};
Result<PlannerTask> TaskOfPlanner(const PlanInput& input);

/// Sets what depends on the numbers.
void Number(Plan& plan, const Numbering& numbering, const Addressing& addressing);

bool IsIpv6(const Plan& plan);

/// Blocks of a packet, with a tag or without, that fits `mtu`: at most MLNET_BLOCKS_MAX, 0 when not even one does. Even
/// where a pair of exponents covers two.
uint32_t BlocksPerPacket(int mtu, bool is_ipv6, bool has_mac);

/// The pools of a job: a big one for each class, and a small one for its fix-up stream.
struct PoolSize {
  uint8_t class_stream = 0;
  uint32_t log2_slots = 0;
};
inline uint32_t NumPools(const Plan& plan) { return plan.classes * MLNET_STREAMS_MAX; }
PoolSize PoolOf(const Plan& plan, uint32_t index);
/// Slots of all pools together.
uint32_t SlotsOf(uint32_t log2_slots, uint32_t classes);

/// Hosts with ranks, in the order of their first rank.
std::vector<std::string> WorkerHosts(const Plan& plan);
/// Hosts with ranks, then those that only sum.
std::vector<std::string> HostsOf(const Plan& plan);
bool Involves(const Plan& plan, const std::string& host);

/// The first tree's root decides what all wait for.
bool IsRoot(const Plan& plan, size_t tree, const std::string& host);
bool IsRootOfAny(const Plan& plan, const std::string& host);
/// Of the roots: "a1", "w1, w2, w3".
std::string NamesOfAggregators(const Plan& plan);

}  // namespace mlnet::control
