// SPDX-License-Identifier: Apache-2.0
// Which ids and ranges of this host's maps a job holds.
#pragma once

#include <memory>
#include <vector>

#include "control/allocator.h"
#include "control/model.h"
#include "control/node.h"

namespace mlnet::daemon {

/// All that there are on this host.
struct IdPools {
  explicit IdPools(uint32_t num_slots);
  control::RangePool slots, links;
  control::IdPool words, inboxes, rings, fans, stats;
};

/// What the host gave a job; given back when it is destroyed.
class Holding {
 public:
  Holding(std::shared_ptr<IdPools> pools, const control::Plan& plan);
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  ~Holding();

  /// Each says what ran out; what was taken before goes back with the holding.
  const char* TakeNode(const control::Plan& plan, size_t t, size_t at);
  const char* TakeWorker(size_t num_ranks);
  const char* TakeServer();
  const char* TakeStats(size_t t);

  /// All of `wanted`, which an earlier daemon gave the job; says what is not free any more. REQUIRES: nothing was taken.
  const char* TakeThese(const control::Plan& plan, const std::string& host, const control::HostIds& wanted);

  control::HostIds ids;

 private:
  struct Node {
    bool has_slots = false;
    uint32_t num_links = 0;
  };
  const char* TakeThisNode(const control::Plan& plan, size_t t, size_t at, const control::TreeIds& wanted);

  std::shared_ptr<IdPools> pools_;
  uint32_t slots_;
  std::vector<Node> nodes_;  // by tree
};

}  // namespace mlnet::daemon
