// SPDX-License-Identifier: Apache-2.0
// Stage 6 of the tensor path: how packets leave and what comes back. Network enters the engine here only.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "mlnet/error.h"
#include "mlnet/event.h"
#include "mlnet/job.h"
#include "ring/agreement.h"

namespace mlnet::worker {

/// Most packets and bytes of one Send: what the kernel takes as one UDP GSO datagram.
inline constexpr size_t kBatchPacketsMax = 44;
inline constexpr size_t kBatchBytesMax = 64768;

class RingRouter;

class Transport {
 public:
  virtual ~Transport() = default;

  /// Packets of one flow (FlowOf) laid end to end, all `packet_bytes` long but the last, which may be shorter.
  /// A packet that the kernel has no room for is lost like any other.
  virtual Result<void> Send(size_t flow, std::span<const std::byte> packets, size_t packet_bytes) = 0;
  /// Of all packets from here on; -1: each class has its own again.
  virtual void SetDscp(int dscp) = 0;
  /// The job's inbox on this host; written by the XDP program at any time.
  virtual const mlnet_cell* Cells() const = 0;
  /// Takes the oldest notice for this rank; false when there is none.
  virtual bool NextNotice(mlnet_notice& notice) = 0;

  /// The ring that took over from a lost aggregator: it loses nothing, so there are no retries. Null: the kernel sums.
  virtual const RingRouter* ring() const { return nullptr; }
  /// When the ring has taken over, once: what becomes of the packets that were on their way, by lane (ring/ring_lanes.h).
  virtual std::optional<std::vector<Settled>> TakeSettled() { return std::nullopt; }
};

}  // namespace mlnet::worker
