// SPDX-License-Identifier: Apache-2.0
#include "control/rails.h"

#include <algorithm>

#include "control/roots.h"

namespace mlnet::control {
namespace {

Rail MakeRail(std::vector<const IfaceRecord*> ifaces) {
  uint64_t rate_bps = ifaces.front()->rate_bps;
  for (const IfaceRecord* iface : ifaces) rate_bps = std::min(rate_bps, iface->rate_bps);
  return {std::move(ifaces), rate_bps};
}

bool IsUsable(const IfaceRecord& iface, bool is_spare) {
  return iface.attached && !iface.address.empty() && (iface.aggregator || !is_spare);
}

// Null: it has none in that network.
const IfaceRecord* InNetworkOf(const HostRecord& host, const std::string& address, bool is_spare) {
  const auto it = std::find_if(host.ifaces.begin(), host.ifaces.end(), [&](const IfaceRecord& i) {
    return IsUsable(i, is_spare) && SameNetwork(i, address);
  });
  return it == host.ifaces.end() ? nullptr : &*it;
}

}  // namespace

std::vector<Rail> FindRails(const std::vector<const HostRecord*>& hosts, const std::vector<const IfaceRecord*>& first,
                            size_t first_spare) {
  std::vector<Rail> rails = {MakeRail(first)};
  for (const IfaceRecord& iface : hosts.front()->ifaces) {
    if (!IsUsable(iface, first_spare == 0)) continue;
    // Two NICs in one network are not two ways: the kernel sends to that network by one of them.
    const bool is_known = std::any_of(rails.begin(), rails.end(), [&](const Rail& rail) {
      return rail.ifaces.front() == &iface || SameNetwork(iface, rail.ifaces.front()->address);
    });
    if (is_known) continue;
    std::vector<const IfaceRecord*> ifaces;
    for (size_t h = 0; h < hosts.size(); ++h) {
      const IfaceRecord* own = InNetworkOf(*hosts[h], iface.address, h >= first_spare);
      if (own == nullptr) break;
      ifaces.push_back(own);
    }
    if (ifaces.size() == hosts.size()) rails.push_back(MakeRail(std::move(ifaces)));
  }
  return rails;
}

std::vector<double> SharesOf(const std::vector<Rail>& rails) {
  uint64_t fastest = 0;
  for (const Rail& rail : rails) fastest = std::max(fastest, rail.rate_bps);
  const bool all = std::all_of(rails.begin(), rails.end(), [](const Rail& rail) { return rail.rate_bps > 0; });
  std::vector<double> shares;
  for (const Rail& rail : rails) shares.push_back(all ? static_cast<double>(rail.rate_bps) / static_cast<double>(fastest) : 1.0);
  return shares;
}

}  // namespace mlnet::control
