// SPDX-License-Identifier: Apache-2.0
// What a row of mlnet-lab perf cost: bytes on the links and processor time, over its timed iterations alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "counters.h"

namespace mlnet::lab {

/// All counters at one moment, when no rank sends.
struct Snapshot {
  std::map<std::string, LinkTraffic> links;
  uint64_t cpu_busy = 0;  // of the whole machine, in ticks
  uint64_t cpu_total = 0;
};
Result<Snapshot> TakeSnapshot(const Paths& paths);

struct LinkBytes {
  std::optional<uint64_t> tx;  // nothing is known of a host without a rate
  uint64_t rx = 0;
};

/// Differences of two snapshots, added up over turns.
struct Spent {
  std::map<std::string, LinkBytes> links;
  uint64_t core_bytes = 0;  // what all racks together sent into the core
  uint64_t cpu_busy = 0;
  uint64_t cpu_total = 0;

  void Add(const Snapshot& before, const Snapshot& after, const std::vector<Rack>& racks);
  double CpuPercent() const;
};

}  // namespace mlnet::lab
