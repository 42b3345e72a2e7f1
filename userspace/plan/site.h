// SPDX-License-Identifier: Apache-2.0
// A cluster and a job that have been checked, with names turned into indices and every link direction numbered.
#pragma once

#include "plan/model.h"

namespace mlnet::plan {

struct Link {
  std::string name;
  double rate_bps = 0;  // 0: unlimited
};

struct Site {
  Cluster cluster;
  Job job;
  Settings settings;
  std::vector<size_t> ranks_on;    // per host
  std::vector<int> rack_of;        // per host; -1: plugged into the core
  std::vector<std::string> racks;
  std::vector<Link> links;         // up and down of each host, then of each rack
  std::vector<size_t> workers;     // hosts with ranks
  std::vector<size_t> spares;      // hosts without, which can aggregate
  double contribution_bytes = 0;   // S: what one host sends per job, as frames

  size_t Up(size_t host) const { return 2 * host; }
  size_t Down(size_t host) const { return 2 * host + 1; }
  size_t RackUp(int rack) const { return 2 * (cluster.hosts.size() + static_cast<size_t>(rack)); }
  size_t RackDown(int rack) const { return RackUp(rack) + 1; }
  /// The slower direction of a host's link; infinite where neither has a limit.
  double RateOf(size_t host) const;
  bool CanAggregate(size_t host) const { return cluster.hosts[host].can_aggregate; }
};

/// kInvalidArgument or kUnsupported where no plan can make sense of the input.
Result<Site> MakeSite(const Cluster& cluster, const Job& job, const Settings& settings);

/// Payload and frame of a packet that fits `mtu`.
void FitToMtu(Settings& settings, int mtu);

/// Rank r on the hosts in their order, `per_host` on each that is named.
std::vector<std::string> PlaceInOrder(const std::vector<std::string>& hosts, size_t per_host);

}  // namespace mlnet::plan
