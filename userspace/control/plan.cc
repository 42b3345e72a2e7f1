// SPDX-License-Identifier: Apache-2.0
#include "control/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "control/tree.h"
#include "mlnet/job.h"

namespace mlnet::control {
namespace {

constexpr uint32_t kFixupLog2Slots = 7;  // with 32, plain sums of the demo took 9 % longer

void AddOnce(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

}  // namespace

bool IsIpv6(const Plan& plan) { return IpAddress::Parse(plan.ports.front().address).value_or(IpAddress()).IsIpv6(); }

uint32_t BlocksPerPacket(int mtu, bool is_ipv6, bool has_mac) {
  // IP and UDP headers, then header, trailer and tag of the packet.
  const int overhead = (is_ipv6 ? 40 : 20) + 8 + static_cast<int>(sizeof(mlnet_hdr) + sizeof(mlnet_trailer)) + (has_mac ? MLNET_MAC_BYTES : 0);
  const auto blocks = static_cast<uint32_t>(std::clamp((mtu - overhead) / MLNET_BLOCK_BYTES, 0, MLNET_BLOCKS_MAX));
  return blocks / MLNET_BLOCKS_PER_PAIR(blocks) * MLNET_BLOCKS_PER_PAIR(blocks);
}

void Number(Plan& plan, const Numbering& numbering, const Addressing& addressing) {
  plan.job_id = numbering.job_id;
  plan.epoch = numbering.epoch;
  plan.group = GroupOf(IsIpv6(plan) ? addressing.group6 : addressing.group, numbering.job_id);
}

PoolSize PoolOf(const Plan& plan, uint32_t index) {
  const uint32_t stream = index / plan.classes;
  return {MLNET_CLASS_STREAM(index % plan.classes, stream),
          stream == 0 ? plan.log2_slots : std::min(plan.log2_slots, kFixupLog2Slots)};
}

uint32_t SlotsOf(uint32_t log2_slots, uint32_t classes) {
  return classes * ((uint32_t{1} << log2_slots) + (uint32_t{1} << std::min(log2_slots, kFixupLog2Slots)));
}

std::vector<std::string> WorkerHosts(const Plan& plan) {
  std::vector<std::string> hosts;
  for (const std::string& host : plan.host_of_rank) AddOnce(hosts, host);
  return hosts;
}

std::vector<std::string> HostsOf(const Plan& plan) {
  std::vector<std::string> hosts = WorkerHosts(plan);
  for (const PlanPort& port : plan.ports) {
    if (!port.host.empty()) AddOnce(hosts, port.host);
  }
  return hosts;
}

bool IsRoot(const Plan& plan, size_t tree, const std::string& host) { return RootOf(plan, tree).host == host; }

bool IsRootOfAny(const Plan& plan, const std::string& host) {
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    if (IsRoot(plan, t, host)) return true;
  }
  return false;
}

bool HasNobodyToSum(const Plan& plan) { return !plan.trees.empty() && RootOf(plan, 0).host.empty(); }

bool Involves(const Plan& plan, const std::string& host) {
  const auto hosts = HostsOf(plan);
  return std::find(hosts.begin(), hosts.end(), host) != hosts.end();
}

std::string NamesOfAggregators(const Plan& plan) {
  std::vector<std::string> roots;
  for (size_t t = 0; t < plan.trees.size(); ++t) AddOnce(roots, RootOf(plan, t).host);
  return fmt::format("{}", fmt::join(roots, ", "));
}

}  // namespace mlnet::control
