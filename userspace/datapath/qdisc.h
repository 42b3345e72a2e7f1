// SPDX-License-Identifier: Apache-2.0
// The root qdisc of an interface: what is there, what of it can be put back, and one with a band for each priority.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "mlnet/error.h"
#include "mlnet/tag.h"

namespace mlnet::datapath {

inline constexpr uint32_t kQosHandle = MLNET_QOS_HANDLE;
inline constexpr size_t kPriorities = 16;           // values of skb->priority that qdiscs map

struct RootQdisc {
  std::string kind;
  uint32_t handle = 0;              // 0: the kernel's own choice
  std::vector<uint8_t> options;     // as the kernel says them, and takes them back
  bool has_parts = false;           // classes, filters or qdiscs below it, which would be lost
  bool operator==(const RootQdisc&) const = default;
};

Result<RootQdisc> ReadRootQdisc(int ifindex);

/// REQUIRES: `before` was read from this interface and has no parts of somebody's.
Result<void> RestoreRootQdisc(int ifindex, const RootQdisc& before);

/// Bands, the most urgent one first.
struct BandSpec {
  std::string kind;  // mqprio, prio, ets, htb
  std::array<uint8_t, kPriorities> band_of_priority{};
  uint32_t num_bands = 0;
  uint32_t other_band = 0;         // of packets without a priority
  std::vector<uint32_t> weights;   // by band; empty: strict
  uint64_t rate_bps = 0;           // htb: of the link
  uint32_t num_queues = 0;         // mqprio: the NIC's
};

/// Puts it in the place of the root qdisc. On an error the caller restores. `classifier`: the program that htb asks.
Result<void> SetBands(int ifindex, const BandSpec& spec, int classifier);

uint32_t NumTxQueues(int ifindex);

}  // namespace mlnet::datapath
