// SPDX-License-Identifier: Apache-2.0
// The job table entry of one host (mlnet_node), from the plan and the ids that this host gave the job.
#pragma once

#include <string>
#include <vector>

#include "control/model.h"
#include "mlnet/job.h"

namespace mlnet::control {

/// Ids and ranges of one job on one host; 0 and empty: not needed there.
struct HostIds {
  uint32_t slot_base = 0;
  std::vector<uint32_t> words;  // per pool, in the order of PoolOf
  uint32_t inbox = 0;           // also the wake map's
  std::vector<uint32_t> rings;  // per local rank
  uint32_t fan = 0;
  uint32_t link_base = 0;
  uint32_t stats = 0;
};

/// Ranks on `host`, ascending: local index -> rank.
std::vector<int> LocalRanks(const Plan& plan, const std::string& host);

/// Cells of the job's inbox on a worker host.
uint32_t InboxCells(const Plan& plan);

mlnet_node MakeNode(const Plan& plan, const std::string& host, const HostIds& ids, bool multicast);

/// Link address of an IPv4 multicast group given in network order.
void GroupMac(uint32_t group_be, uint8_t mac[6]);

}  // namespace mlnet::control
