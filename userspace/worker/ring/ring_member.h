// SPDX-License-Identifier: Apache-2.0
// What the engine sends by: the kernel's path, until its aggregator is lost; then nothing, until all ranks know what each
// of them holds; then the ring. The same engine, lanes and traffics go on over it.
// Not here: connections and time (ring_link.h, ring_port.h).
#pragma once

#include <optional>
#include <vector>

#include "config.h"
#include "ring/held_table.h"
#include "ring/ring_link.h"
#include "ring/ring_router.h"
#include "transport/transport.h"

namespace mlnet::worker {

class RingMember final : public Transport, public RingHandler {
 public:
  /// `kernel` outlives the member.
  RingMember(const EngineConfig& config, Transport& kernel) : config_(config), kernel_(kernel) {}

  /// `held`: by lane, of this rank, whose kernel is barred. Nothing is sent by the kernel from here on.
  void Begin(std::vector<Held> held, RingSink& next);
  Result<void> OnMessage(RingKind kind, uint16_t hops, std::span<const std::byte> body) override;
  /// Between Begin and the ring: who has not told yet what it holds.
  std::optional<int> Awaited() const;

  Result<void> Send(size_t flow, std::span<const std::byte> packets, size_t packet_bytes) override;
  void SetDscp(int dscp) override { kernel_.SetDscp(dscp); }
  const mlnet_cell* Cells() const override { return has_ring_ ? router_->cells() : kernel_.Cells(); }
  bool NextNotice(mlnet_notice& notice) override;
  const RingRouter* ring() const override { return has_ring_ ? &*router_ : nullptr; }
  std::optional<std::vector<Settled>> TakeSettled() override;
  RingRouter* router() { return has_ring_ ? &*router_ : nullptr; }
  bool HasSaidBye() const { return has_said_bye_; }  // the previous rank

 private:
  Result<void> TakeHeld(uint16_t hops, std::span<const std::byte> report);
  Result<void> BeginIfSettled();

  const EngineConfig config_;
  Transport& kernel_;
  RingSink* next_ = nullptr;
  std::optional<HeldTable> table_;
  std::optional<RingRouter> router_;
  std::optional<std::vector<Settled>> settled_;  // not taken yet
  bool has_ring_ = false;
  bool has_said_bye_ = false;
};

}  // namespace mlnet::worker
