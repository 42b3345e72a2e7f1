// SPDX-License-Identifier: Apache-2.0
#include "ring/ring_member.h"

#include <algorithm>

namespace mlnet::worker {

void RingMember::Begin(std::vector<Held> held, RingSink& next) {
  next_ = &next;
  table_.emplace(LanesOf(config_), config_.world_size);
  router_.emplace(config_, next);
  const auto report = table_->Encode(config_.rank, held);
  (void)table_->Take(report);  // own, so it fits
  if (config_.world_size > 1) next.Send(RingKind::kHeld, AllOthers(config_.world_size), report);
  else (void)BeginIfSettled();  // alone, so nothing contradicts it
}

Result<void> RingMember::OnMessage(RingKind kind, uint16_t hops, std::span<const std::byte> body) {
  switch (kind) {
    case RingKind::kHeld:
      return TakeHeld(hops, body);
    case RingKind::kPacket:
      // Whoever sends one has all reports, and has passed them on before it.
      if (!has_ring_) return Err(ErrorCode::kProtocol, "the previous rank in the ring sent a packet before all had told what they hold");
      return router_->TakePacket(hops, body);
    case RingKind::kMissing:
      return router_->TakeMissing(hops, body);
    case RingKind::kBye:
      has_said_bye_ = true;
      return {};
    default:
      return {};
  }
}

Result<void> RingMember::TakeHeld(uint16_t hops, std::span<const std::byte> report) {
  if (has_ring_) return {};
  if (hops > 1) next_->Send(RingKind::kHeld, static_cast<uint16_t>(hops - 1), report);
  if (auto ok = table_->Take(report); !ok) return ok;
  return BeginIfSettled();
}

Result<void> RingMember::BeginIfSettled() {
  if (!table_->IsComplete()) return {};
  auto settled = table_->SettleAll();
  if (!settled) return tl::make_unexpected(settled.error());
  if (auto ok = router_->Begin(*settled, kernel_.Cells()); !ok) return ok;
  settled_ = std::move(*settled);
  has_ring_ = true;
  return {};
}

std::optional<int> RingMember::Awaited() const {
  if (!table_ || table_->IsComplete()) return std::nullopt;
  return table_->FirstMissing();
}

std::optional<std::vector<Settled>> RingMember::TakeSettled() { return std::exchange(settled_, std::nullopt); }

Result<void> RingMember::Send(size_t flow, std::span<const std::byte> packets, size_t packet_bytes) {
  if (!table_ && config_.starts_in_ring) return {};
  if (!table_) return kernel_.Send(flow, packets, packet_bytes);
  if (!has_ring_) return {};
  const size_t tag_bytes = config_.ring_key ? MLNET_MAC_BYTES : 0;  // of the way through the kernel; a stream's are other ones
  for (size_t at = 0; at < packets.size(); at += packet_bytes) {
    const auto packet = packets.subspan(at, std::min(packet_bytes, packets.size() - at));
    router_->Contribute(packet.first(packet.size() - tag_bytes));
  }
  return {};
}

bool RingMember::NextNotice(mlnet_notice& notice) {
  if (has_ring_) return router_->NextNotice(notice);
  return kernel_.NextNotice(notice);
}

}  // namespace mlnet::worker
