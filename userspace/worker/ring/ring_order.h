// SPDX-License-Identifier: Apache-2.0
// What mlnetd tells a rank when the job has lost an aggregator, as plain values.
#pragma once

#include <cstdint>
#include <string>

namespace mlnet::worker {

/// The kernel of this host is barred: what it has delivered is all that it will.
struct RingOrder {
  std::string job;
  std::string why;  // whom the job has lost
  std::string address;  // to listen on
  std::string token;
};

struct RingPeers {
  int next = 0;
  std::string next_host;
  std::string next_address;
  uint16_t next_port = 0;
  int previous = 0;
  std::string previous_host;
};

}  // namespace mlnet::worker
