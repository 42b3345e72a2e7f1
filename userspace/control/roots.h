// SPDX-License-Identifier: Apache-2.0
// Which hosts can sum a job, and why the others cannot: the first half of planning.
#pragma once

#include <string>
#include <vector>

#include "control/model.h"
#include "control/plan.h"

namespace mlnet::control {

struct Candidate {
  const HostRecord* host;
  const IfaceRecord* iface;
  size_t load;  // jobs that it sums already
};

struct Candidates {
  std::vector<Candidate> spares;   // without ranks of this job; the least busy first
  std::vector<Candidate> workers;  // hosts of its ranks
  std::string why_no_spare;        // "a1: its mlnetd is not running; w1: ..."
  std::string why_no_worker;
};

Candidates FindCandidates(const PlanInput& in);

/// Slots that a host needs for each tree that it sums.
uint32_t SlotsPerTree(const JobSpec& spec);

const HostRecord* FindHost(const std::vector<HostRecord>& hosts, const std::string& name);

/// Whether `address` is in the network of an interface.
bool SameNetwork(const IfaceRecord& iface, const std::string& address);

/// The attached interface that shares a network with `address`; else, behind a router, the first one.
const IfaceRecord* IfaceTowards(const HostRecord& host, const std::string& address);

}  // namespace mlnet::control
