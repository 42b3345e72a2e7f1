// SPDX-License-Identifier: Apache-2.0
// Which addresses jobs use; the same on all hosts. A job has one family: its plan is all IPv4 or all IPv6.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ip_address.h"
#include "control/model.h"
#include "mlnet/error.h"

namespace mlnet::control {

/// A group is the prefix with the job id in its low bits.
struct GroupPrefix {
  IpAddress base;
  int bits = 0;
};

struct Addressing {
  std::string family = "auto";  // auto, ipv4, ipv6
  GroupPrefix group, group6;
};

/// "239.77.0.0/16", "ff15::6d6c:0/112".
std::optional<GroupPrefix> ParseGroupPrefix(const std::string& text);

std::string GroupOf(const GroupPrefix& prefix, uint16_t job_id);

/// The hosts with the addresses of the family that the job will use. `auto`: IPv4 where every host of its ranks has one
/// on an interface with the program, else IPv6. kUnavailable names who lacks what.
Result<std::vector<HostRecord>> HostsOfFamily(const Addressing& addressing, const JobView& job, const std::vector<HostRecord>& hosts);

}  // namespace mlnet::control
