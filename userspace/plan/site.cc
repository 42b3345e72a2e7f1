// SPDX-License-Identifier: Apache-2.0
#include "plan/site.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace mlnet::plan {
namespace {

// More ranks leave fewer than 16 levels of an int8 lane, or fewer than 1024 of an int16 lane.
constexpr size_t kInt8RanksMax = 16;
constexpr size_t kInt16RanksMax = 64;

bool IsRate(double bps) { return std::isfinite(bps) && bps >= 0; }

Result<void> CheckJob(const Job& job) {
  if (job.host_of_rank.empty()) {
    return Err(ErrorCode::kInvalidArgument, "the job has no ranks", "name the host of each rank");
  }
  if (job.bytes == 0) return Err(ErrorCode::kInvalidArgument, "the job has nothing to sum: 0 bytes");
  if (job.lane_bits != 32 && job.lane_bits != 16 && job.lane_bits != 8) {
    return Err(ErrorCode::kInvalidArgument, fmt::format("lanes of {} bits do not exist", job.lane_bits),
               "the wire types are int32, int16 and int8");
  }
  const size_t world_size = job.host_of_rank.size();
  const size_t ranks_max = job.lane_bits == 8    ? kInt8RanksMax
                           : job.lane_bits == 16 ? kInt16RanksMax
                                                 : std::numeric_limits<size_t>::max();
  if (world_size > ranks_max) {
    return Err(ErrorCode::kUnsupported,
               fmt::format("wire type int{} leaves too few levels with {} ranks (more than {})", job.lane_bits,
                           world_size, ranks_max),
               fmt::format("use int{}", job.lane_bits == 8 && world_size <= kInt16RanksMax ? 16 : 32));
  }
  return {};
}

Result<void> CheckSettings(const Settings& s) {
  if (s.children_max < 2 || s.trees_max < 1 || s.degree < 1) {
    return Err(ErrorCode::kInvalidArgument,
               "a node needs room for 2 children, a plan for 1 tree, a degree is at least 1");
  }
  if (!(s.payload_bytes > 0) || !(s.frame_bytes >= s.payload_bytes) || !(s.level_s >= 0)) {
    return Err(ErrorCode::kInvalidArgument, "packet sizes and the time of a level cannot be negative");
  }
  return {};
}

Result<void> AddHosts(Site& site) {
  std::map<std::string, int> rack_ids;
  std::map<std::string, size_t> host_ids;
  for (const Host& host : site.cluster.hosts) {
    if (!host_ids.emplace(host.name, site.rack_of.size()).second) {
      return Err(ErrorCode::kInvalidArgument, fmt::format("host '{}' is named twice", host.name));
    }
    if (!IsRate(host.up_bps) || !IsRate(host.down_bps)) {
      return Err(ErrorCode::kInvalidArgument, fmt::format("host '{}': a rate cannot be negative", host.name),
                 "0 means unlimited");
    }
    int rack = -1;
    if (!host.rack.empty()) {
      rack = rack_ids.emplace(host.rack, static_cast<int>(site.racks.size())).first->second;
      if (static_cast<size_t>(rack) == site.racks.size()) site.racks.push_back(host.rack);
    }
    site.rack_of.push_back(rack);
    site.links.push_back({host.name + " up", host.up_bps});
    site.links.push_back({host.name + " down", host.down_bps});
  }
  site.ranks_on.assign(site.cluster.hosts.size(), 0);
  for (size_t rank = 0; rank < site.job.host_of_rank.size(); ++rank) {
    const auto it = host_ids.find(site.job.host_of_rank[rank]);
    if (it == host_ids.end()) {
      return Err(ErrorCode::kInvalidArgument,
                 fmt::format("rank {} is on host '{}', which is not in the cluster", rank,
                             site.job.host_of_rank[rank]));
    }
    ++site.ranks_on[it->second];
  }
  return {};
}

// All hosts of a rack at full speed, divided by the oversubscription; one without a limit leaves the rack without.
double SharedRate(const Site& site, int rack, double Host::*rate) {
  if (site.cluster.oversubscription == 0) return 0;
  double sum = 0;
  for (size_t h = 0; h < site.rack_of.size(); ++h) {
    if (site.rack_of[h] != rack) continue;
    if (site.cluster.hosts[h].*rate == 0) return 0;
    sum += site.cluster.hosts[h].*rate;
  }
  return sum / site.cluster.oversubscription;
}

Result<void> AddRacks(Site& site) {
  const double ratio = site.cluster.oversubscription;
  if (!IsRate(ratio)) {
    return Err(ErrorCode::kInvalidArgument, "the core's oversubscription cannot be negative", "4 means 1:4");
  }
  for (const Rack& rack : site.cluster.racks) {
    if (!IsRate(rack.up_bps) || !IsRate(rack.down_bps)) {
      return Err(ErrorCode::kInvalidArgument, fmt::format("rack '{}': a rate cannot be negative", rack.name));
    }
    if (std::find(site.racks.begin(), site.racks.end(), rack.name) == site.racks.end()) {
      return Err(ErrorCode::kInvalidArgument, fmt::format("rack '{}' has no hosts", rack.name),
                 "name it as the rack of a host");
    }
  }
  for (size_t r = 0; r < site.racks.size(); ++r) {
    double up = SharedRate(site, static_cast<int>(r), &Host::up_bps);
    double down = SharedRate(site, static_cast<int>(r), &Host::down_bps);
    for (const Rack& rack : site.cluster.racks) {
      if (rack.name != site.racks[r]) continue;
      if (rack.up_bps > 0) up = rack.up_bps;
      if (rack.down_bps > 0) down = rack.down_bps;
    }
    site.links.push_back({fmt::format("rack {} up", site.racks[r]), up});
    site.links.push_back({fmt::format("rack {} down", site.racks[r]), down});
  }
  return {};
}

}  // namespace

double Site::RateOf(size_t host) const {
  const auto limit = [](double bps) { return bps > 0 ? bps : std::numeric_limits<double>::infinity(); };
  return std::min(limit(cluster.hosts[host].up_bps), limit(cluster.hosts[host].down_bps));
}

Result<Site> MakeSite(const Cluster& cluster, const Job& job, const Settings& settings) {
  Site site;
  site.cluster = cluster;
  site.job = job;
  site.settings = settings;
  if (auto ok = CheckJob(job); !ok) return tl::make_unexpected(ok.error());
  if (auto ok = CheckSettings(settings); !ok) return tl::make_unexpected(ok.error());
  if (auto ok = AddHosts(site); !ok) return tl::make_unexpected(ok.error());
  if (auto ok = AddRacks(site); !ok) return tl::make_unexpected(ok.error());
  for (size_t h = 0; h < cluster.hosts.size(); ++h) {
    if (site.ranks_on[h] > settings.children_max) {
      return Err(ErrorCode::kUnsupported,
                 fmt::format("host '{}' has {} ranks, one node sums at most {} children", cluster.hosts[h].name,
                             site.ranks_on[h], settings.children_max),
                 "spread the ranks over more hosts");
    }
    if (site.ranks_on[h] > 0) site.workers.push_back(h);
    else if (site.CanAggregate(h)) site.spares.push_back(h);
  }
  const double lanes_bytes = static_cast<double>(job.bytes) / 4 * job.lane_bits / 8;
  site.contribution_bytes = lanes_bytes / settings.payload_bytes * settings.frame_bytes;
  return site;
}

void FitToMtu(Settings& settings, int mtu) {
  constexpr int kHeaders = 20 + 8 + static_cast<int>(sizeof(mlnet_hdr) + sizeof(mlnet_trailer));
  constexpr int kEthernet = 14;
  const int blocks = std::clamp((mtu - kHeaders) / MLNET_BLOCK_BYTES, 1, MLNET_BLOCKS_MAX);
  settings.payload_bytes = blocks / MLNET_BLOCKS_PER_PAIR(blocks) * MLNET_BLOCKS_PER_PAIR(blocks) * MLNET_BLOCK_BYTES;
  settings.frame_bytes = settings.payload_bytes + kHeaders + kEthernet;
}

std::vector<std::string> PlaceInOrder(const std::vector<std::string>& hosts, size_t per_host) {
  std::vector<std::string> host_of_rank;
  for (const std::string& host : hosts) host_of_rank.insert(host_of_rank.end(), per_host, host);
  return host_of_rank;
}

}  // namespace mlnet::plan
