// SPDX-License-Identifier: Apache-2.0
// The job table entry of one host (mlnet_node), from the plan and the ids that this host gave the job.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "control/model.h"
#include "mlnet/job.h"

namespace mlnet::control {

/// Ids and ranges of one tree on one host; 0 and empty: not needed there.
struct TreeIds {
  uint32_t slot_base = 0;
  std::vector<uint32_t> words;  // per pool, in the order of PoolOf
  uint32_t fan = 0;
  uint32_t link_base = 0;
  uint32_t stats = 0;
};
struct HostIds {
  uint32_t inbox = 0;           // also the wake map's
  std::vector<uint32_t> rings;  // per local rank
  std::vector<TreeIds> trees;
  uint32_t server_inbox = 0;  // of the job's server; also its wake map's
  uint32_t server_ring = 0;
};
using Mac = std::array<uint8_t, 6>;

/// Link addresses that a node needs.
struct HostMacs {
  Mac nic{};  // of the NIC that it sends by
  Mac up{};   // of the next hop to the node above (inner)
};

/// Cells of the job's inbox on a worker host, of all trees.
uint32_t InboxCells(const Plan& plan);

/// What `host` does in tree `tree`.
mlnet_node MakeNode(const Plan& plan, size_t tree, const std::string& host, const HostIds& ids, const HostMacs& macs,
                    bool multicast);

/// The ids that an entry made by MakeNode for all trees of `plan` on `host` names.
HostIds IdsIn(const Plan& plan, const std::string& host, const std::vector<mlnet_node>& nodes);

/// Whether an entry that an earlier daemon made is this plan's and host's: `wanted` is what MakeNode makes of it now. What
/// changes while a job runs is left out: link addresses, marks, users, tracing, timers.
bool IsSameNode(const mlnet_node& there, const mlnet_node& wanted);

/// Link address of a multicast group: RFC 1112 for IPv4, RFC 2464 for IPv6.
Mac GroupMac(const std::string& group);

}  // namespace mlnet::control
