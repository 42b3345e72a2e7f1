// SPDX-License-Identifier: Apache-2.0
// How jobs that meet on a link divide it: by weight, or one after the other.
//   kFair      every job has its weight's share of each link that it uses
//   kShortest  the job with the least left to transfer goes in front; the others on its links wait (MLNet: what
//              counts is the mean time to completion, and jobs in turn halve it). One that has waited too long is
//              served next. Jobs without a link in common are in front side by side.
// Jobs of both kinds may meet: those that do not wait share by weight.
// Why pure: all daemons compute the same from the same records, whoever looks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mlnet::plan {

enum class Order { kFair, kShortest };

/// Of a job that is transferring.
struct RunningJob {
  std::string name;
  Order order = Order::kFair;
  uint32_t weight = 1;
  std::optional<double> left_bytes;  // per rank; nullopt: nobody knows
  double done_bytes = 0;
  double service_s = 1;     // what all of its work takes, or has taken so far, when it is in front
  double waited_s = 0;      // its account: waiting adds to it, being in front takes `ageing` times that away
  bool is_in_front = false;  // as the last decision was
  bool is_overdue = false;
  uint64_t opened_ms = 0;
  std::vector<std::string> links;  // names; what they carry does not matter here
};

struct LinkShare {
  double share = 1;          // of the narrowest link; 1: nobody else is there
  bool waits = false;
  bool is_overdue = false;   // has waited so long that it is served next
  uint32_t num_waiting = 0;  // jobs that wait on its links, itself too
  uint32_t level = 0;        // 0 in front, 1 next, 2 all later ones
};

/// By job. `ageing`: one that has waited for longer than so many times its own service is served next, until it
/// has had that service.
std::vector<LinkShare> ShareLinks(const std::vector<RunningJob>& jobs, double ageing);

}  // namespace mlnet::plan
