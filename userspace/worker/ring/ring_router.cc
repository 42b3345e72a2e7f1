// SPDX-License-Identifier: Apache-2.0
#include "ring/ring_router.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace mlnet::worker {
namespace {

size_t NumCells(const std::vector<RingLane>& lanes) {
  size_t cells = 0;
  for (const RingLane& lane : lanes) cells = std::max<size_t>(cells, lane.pool.cell_base + 2ULL * lane.pool.slots());
  return cells;
}

size_t CellOf(const PoolConfig& pool, uint64_t seq) {
  return pool.cell_base + (seq & (pool.slots() - 1)) * 2 + (seq >> pool.log2_slots & 1);
}

Error Damaged(const std::string& what) {
  return {ErrorCode::kProtocol, "the previous rank in the ring sent " + what, "all hosts must run the same mlnet version"};
}

}  // namespace

RingRouter::RingRouter(const EngineConfig& config, RingSink& next) : config_(config), next_(next) {
  const auto lanes = LanesOf(config);
  for (const RingLane& lane : lanes) lanes_.push_back({lane, {}, {}, {}, {}});
  cells_.resize(NumCells(lanes));
}

std::optional<size_t> RingRouter::LaneOf(uint8_t tree, uint8_t class_stream) const {
  const auto it = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    return lane.shape.tree == tree && lane.shape.class_stream == class_stream;
  });
  if (it == lanes_.end()) return std::nullopt;
  return static_cast<size_t>(it - lanes_.begin());
}

Result<void> RingRouter::Begin(std::vector<Settled> settled, const mlnet_cell* kernel_cells) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    lane.settled = std::move(settled[i]);
    for (size_t ahead = 0; ahead < lane.settled.holder.size(); ++ahead) {
      const int holder = lane.settled.holder[ahead];
      if (holder >= 0 && holder != config_.rank) ++num_expected_;
      if (holder != config_.rank) continue;
      mlnet_hdr header{};
      header.job = config_.job;
      header.epoch = config_.epoch;
      header.tree = lane.shape.tree;
      header.class_stream = lane.shape.class_stream;
      const uint64_t seq = lane.settled.base + ahead;
      wire::SetSeq(header, seq & MLNET_SEQ_MASK);
      const mlnet_cell& cell = kernel_cells[CellOf(lane.shape.pool, seq)];
      if (cell.published != MLNET_STAMP(config_.epoch, seq) || cell.words > MLNET_WORDS_MAX) {
        return Err(ErrorCode::kProtocol, "the result of packet " + std::to_string(seq) + " is not in the inbox any more, though others miss it",
                   "all hosts must run the same mlnet version");
      }
      Pass(MLNET_T_RESULT, AllOthers(config_.world_size), RingSum(header, cell));
    }
  }
  return {};
}

void RingRouter::Contribute(std::span<const std::byte> packet) {
  wire::View view;
  if (!wire::Parse(packet, view) || wire::Type(view.header) != MLNET_T_CONTRIB) return;  // a ping: the ring has its own
  const auto at = LaneOf(view.header.tree, view.header.class_stream);
  if (!at) return;
  Lane& lane = lanes_[*at];
  RingSum own(view);
  const uint64_t seq = own.seq();
  if (StartOf(seq) == config_.rank) return Pass(MLNET_T_CONTRIB, 1, own);
  const auto waiting = lane.sums.find(seq);
  if (waiting == lane.sums.end()) {
    lane.own.insert_or_assign(seq, std::move(own));
    return;
  }
  const RingSum sum = std::move(waiting->second);
  lane.sums.erase(waiting);
  Join(lane, sum, own);
}

Result<void> RingRouter::TakePacket(uint16_t hops, std::span<const std::byte> packet) {
  wire::View view;
  if (!wire::Parse(packet, view) || !wire::Verify(view)) return tl::make_unexpected(Damaged("a damaged packet"));
  const auto at = LaneOf(view.header.tree, view.header.class_stream);
  if (!at || view.header.job != config_.job || view.header.epoch != config_.epoch) {
    return tl::make_unexpected(Damaged("a packet of another job"));
  }
  if (wire::Type(view.header) == MLNET_T_CONTRIB) return TakeSum(lanes_[*at], RingSum(view));
  TakeResult(lanes_[*at], RingSum(view), hops);
  return {};
}

Result<void> RingRouter::TakeSum(Lane& lane, const RingSum& sum) {
  const auto own = lane.own.find(sum.seq());
  if (own == lane.own.end()) {
    if (lane.sums.size() >= 2ULL * lane.shape.pool.slots()) return tl::make_unexpected(Damaged("more packets than two pools have"));
    lane.sums.insert_or_assign(sum.seq(), sum);
    return {};
  }
  const RingSum mine = std::move(own->second);
  lane.own.erase(own);
  Join(lane, sum, mine);
  return {};
}

void RingRouter::Join(Lane& lane, RingSum sum, const RingSum& own) {
  if (!sum.Matches(own)) {  // ends as in the kernel: all ranks say what they call, and the job fails
    const mlnet_hdr& header = own.header();
    notices_.push_back({.type = MLNET_T_MISMATCH, .tree = header.tree, .class_stream = header.class_stream, .child = lane.shape.child,
                        .epoch = config_.epoch, .weight = 0, .seq = own.seq(), .bitmap = 0, .fingerprint = sum.header().fingerprint, .pad = 0});
    return;
  }
  sum.Add(own);
  if ((config_.rank + 1) % config_.world_size != StartOf(sum.seq())) return Pass(MLNET_T_CONTRIB, 1, sum);
  Publish(lane, sum);
  Pass(MLNET_T_RESULT, AllOthers(config_.world_size), sum);
}

void RingRouter::TakeResult(Lane& lane, const RingSum& result, uint16_t hops) {
  // On first, so that whatever follows from it here comes after it there.
  if (hops > 1) Pass(MLNET_T_RESULT, static_cast<uint16_t>(hops - 1), result);
  if (lane.settled.HolderOf(result.seq()) >= 0 && num_expected_ > 0) --num_expected_;
  Publish(lane, result);
}

// Rule 5: only by a higher one.
void RingRouter::Publish(const Lane& lane, const RingSum& result) {
  mlnet_cell& cell = cells_[CellOf(lane.shape.pool, result.seq())];
  const uint64_t stamp = MLNET_STAMP(config_.epoch, result.seq());
  if (cell.published >= stamp) return;
  result.WriteTo(cell);
  cell.claimed = stamp;
  cell.published = stamp;
}

void RingRouter::Pass(uint8_t type, uint16_t hops, const RingSum& sum) {
  std::array<std::byte, wire::kPacketBytesMax> packet;
  const size_t bytes = sum.Write(type, packet);
  next_.Send(RingKind::kPacket, hops, std::span(packet).first(bytes));
}

void RingRouter::TellMissing() {
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    const auto& sums = lanes_[i].sums;
    if (sums.empty()) continue;
    const auto lowest = std::min_element(sums.begin(), sums.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const RingMissing missing{static_cast<uint32_t>(config_.rank), i, lowest->first};
    next_.Send(RingKind::kMissing, AllOthers(config_.world_size), std::as_bytes(std::span(&missing, 1)));
  }
}

Result<void> RingRouter::TakeMissing(uint16_t hops, std::span<const std::byte> body) {
  RingMissing missing;
  if (body.size() != sizeof(missing)) return tl::make_unexpected(Damaged("a message of the wrong size"));
  std::memcpy(&missing, body.data(), sizeof(missing));
  if (missing.lane >= lanes_.size()) return tl::make_unexpected(Damaged("a message about no stream of this job"));
  lanes_[missing.lane].missing = missing;
  if (hops > 1) next_.Send(RingKind::kMissing, static_cast<uint16_t>(hops - 1), body);
  return {};
}

bool RingRouter::NextNotice(mlnet_notice& notice) {
  if (notices_.empty()) return false;
  notice = notices_.front();
  notices_.pop_front();
  return true;
}

std::optional<int> RingRouter::WhoIsMissing(uint8_t tree, uint8_t class_stream, uint64_t seq) const {
  const auto lane = LaneOf(tree, class_stream);
  if (!lane || !lanes_[*lane].missing || lanes_[*lane].missing->seq != (seq & MLNET_SEQ_MASK)) return std::nullopt;
  return static_cast<int>(lanes_[*lane].missing->rank);
}

bool RingRouter::WasSummedBefore(uint8_t tree, uint8_t class_stream, uint64_t seq) const {
  const auto lane = LaneOf(tree, class_stream);
  return lane && lanes_[*lane].settled.HolderOf(seq) != kSummedAgain;
}

}  // namespace mlnet::worker
