// SPDX-License-Identifier: Apache-2.0
// What a simulated job looks like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/network.h"

namespace mlnet::sim {

struct ClusterOptions {
  int ranks = 2;
  int hosts = 0;  // worker hosts; 0: one per rank. Rank r runs on host r mod hosts
  int trees = 1;  // each with a root of its own
  bool workers_sum = false;  // roots are worker hosts, in turn; else hosts without ranks
  bool combines = false;     // hosts of several ranks are inner nodes
  bool has_server = false;   // on the host of each tree's root; one tree
  int racks = 0;             // each with a node of its own between the hosts and the root
  uint32_t forward_ns = 1;   // of inner nodes; by the program's clock, which is not the simulator's
  bool is_multicast = true;
  bool has_mac = false;      // all packets carry a tag
  uint32_t blocks = 0;       // of a full packet; 0: what an MTU of 1500 holds
  uint8_t log2_slots = 5;
  std::vector<uint8_t> classes{0};
  // Clusters with the same of these use the same maps one after the other, each in an epoch of its own.
  uint8_t log2_slots_most = 0;  // 0: log2_slots
  int trees_most = 0;           // 0: trees
  uint64_t first_seq = 0;  // of every class and stream
  uint8_t fixup_log2_slots = 3;
  size_t small_bytes = 0;  // 0: every float sum goes through the slot engine
  uint32_t window_first = 32;
  uint64_t timeout_ns = 5'000'000'000;
  Faults faults = {};
  uint64_t seed = 1;
};

}  // namespace mlnet::sim
