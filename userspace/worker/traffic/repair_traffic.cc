// SPDX-License-Identifier: Apache-2.0
#include "traffic/repair_traffic.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "quantize64.h"
#include "wire/packet.h"

namespace mlnet::worker {
namespace {

// The `packet`-th run of at most `each`.
template <typename T>
std::span<const T> Part(std::span<const T> all, uint64_t packet, size_t each) {
  const size_t first = packet * each;
  return all.subspan(first, std::min(each, all.size() - first));
}

}  // namespace

MarkTraffic::MarkTraffic(FloatTraffic& sum, std::span<const uint64_t> flagged)
    : sum_(sum),
      flagged_(flagged),
      stride_(WordsFor(sum.own_marks().bytes()) * size_t{8}),
      packet_covers_(std::max<size_t>(1, sum.job().blocks * MLNET_BLOCK_BYTES / stride_)) {
  packets_ = CeilDiv(flagged.size(), packet_covers_);
}

std::span<const uint64_t> MarkTraffic::FlaggedOf(uint64_t packet) const {
  return Part(flagged_, packet, packet_covers_);
}

Shape MarkTraffic::ShapeOf(uint64_t packet) const {
  return {WordsFor(FlaggedOf(packet).size() * stride_), wire::OpWire(MLNET_OP_OR, MLNET_WIRE_BITS), true};
}

uint8_t MarkTraffic::Fill(uint64_t packet, bool, std::span<uint64_t> words, uint8_t*) {
  std::fill(words.begin(), words.end(), 0);
  auto* to = reinterpret_cast<std::byte*>(words.data());
  for (const uint64_t flagged : FlaggedOf(packet)) {
    sum_.own_marks().Write(flagged, to);
    to += stride_;
  }
  return 0;
}

void MarkTraffic::Take(uint64_t packet, const mlnet_cell& cell) {
  const auto* from = reinterpret_cast<const std::byte*>(cell.w);
  for (const uint64_t flagged : FlaggedOf(packet)) {
    sum_.merged_marks().Set(flagged, from);
    from += stride_;
  }
}

WideTraffic::WideTraffic(FloatTraffic& sum, const LowLanes& low)
    : sum_(sum),
      low_(low),
      block_bytes_(kBlock64Elements * static_cast<size_t>(low.bits) / 8),
      packet_blocks_(sum.job().blocks * MLNET_BLOCK_BYTES / block_bytes_) {
  packets_ = CeilDiv(low.blocks.size(), packet_blocks_);
}

std::span<const OpenBlock> WideTraffic::BlocksOf(uint64_t packet) const {
  return Part(std::span<const OpenBlock>(low_.blocks), packet, packet_blocks_);
}

Shape WideTraffic::ShapeOf(uint64_t packet) const {
  return {WordsFor(BlocksOf(packet).size() * block_bytes_),
          wire::OpWire(MLNET_OP_ADD64, low_.bits == 16 ? MLNET_WIRE_LOW16 : MLNET_WIRE_LOW32), true};
}

template <typename Lane>
void WideTraffic::FillLanes(uint64_t packet, Lane* to) const {
  const uint64_t mask = (uint64_t{1} << low_.log2_levels) - 1;
  for (const OpenBlock& block : BlocksOf(packet)) {
    std::array<float, kBlock64Elements> x{};
    std::array<uint64_t, kBlock64Elements> whole;
    sum_.LoadBlock(block.block, x.data());
    QuantizeWide(x, block.largest, low_.log2_range, whole.data());
    for (const uint64_t lane : whole) *to++ = static_cast<Lane>(lane & mask);
  }
}

uint8_t WideTraffic::Fill(uint64_t packet, bool, std::span<uint64_t> words, uint8_t*) {
  std::fill(words.begin(), words.end(), 0);  // an odd number of 16-bit blocks leaves half a block of words
  if (low_.bits == 16) FillLanes(packet, reinterpret_cast<uint16_t*>(words.data()));
  else FillLanes(packet, reinterpret_cast<uint32_t*>(words.data()));
  return 0;
}

template <typename Lane>
void WideTraffic::TakeLanes(uint64_t packet, const Lane* from, uint32_t weight) {
  for (const OpenBlock& block : BlocksOf(packet)) {
    std::array<uint64_t, kBlock64Elements> whole;
    const HighSums& high = sum_.HighSumsOf(block);
    for (size_t i = 0; i < whole.size(); ++i) whole[i] = (uint64_t{high[i]} << low_.log2_levels) + *from++;
    std::array<float, kBlock64Elements> sums;
    DequantizeWide(whole, block.largest, low_.log2_range, weight, sums.data());
    sum_.StoreBlock(block.block, sums.data());
  }
}

void WideTraffic::Take(uint64_t packet, const mlnet_cell& cell) {
  if (low_.bits == 16) TakeLanes(packet, reinterpret_cast<const uint16_t*>(cell.w), cell.weight);
  else TakeLanes(packet, reinterpret_cast<const uint32_t*>(cell.w), cell.weight);
}

FarTraffic::FarTraffic(FloatTraffic& sum, std::span<const OpenBlock> blocks)
    : sum_(sum),
      blocks_(blocks),
      world_size_(static_cast<size_t>(sum.job().world_size)),
      block_bytes_(sum.IsDouble() ? MLNET_BLOCK64_BYTES : MLNET_BLOCK_BYTES),
      packet_blocks_(std::max<size_t>(1, sum.job().blocks * MLNET_BLOCK_BYTES / block_bytes_)),
      gathered_(world_size_ * blocks.size() * block_bytes_) {
  packets_ = CeilDiv(blocks.size(), packet_blocks_) * world_size_;
}

FarTraffic::Run FarTraffic::RunOf(uint64_t packet) const {
  const size_t first = packet / world_size_ * packet_blocks_;
  return {packet % world_size_, first, std::min(packet_blocks_, blocks_.size() - first)};
}

Shape FarTraffic::ShapeOf(uint64_t packet) const {
  const Run run = RunOf(packet);
  return {WordsFor(run.count * block_bytes_), wire::OpWire(MLNET_OP_ADD64, MLNET_WIRE_RAW),
          run.owner == static_cast<size_t>(sum_.job().rank)};
}

uint8_t FarTraffic::Fill(uint64_t packet, bool, std::span<uint64_t> words, uint8_t*) {
  std::fill(words.begin(), words.end(), 0);
  const Run run = RunOf(packet);
  auto* to = reinterpret_cast<std::byte*>(words.data());
  for (const OpenBlock& block : blocks_.subspan(run.first, run.count)) {
    if (sum_.IsDouble()) sum_.LoadBlock(block.block, reinterpret_cast<double*>(to));
    else sum_.LoadBlock(block.block, reinterpret_cast<float*>(to));
    to += block_bytes_;
  }
  return 0;
}

void FarTraffic::Take(uint64_t packet, const mlnet_cell& cell) {
  const Run run = RunOf(packet);
  std::memcpy(gathered_.data() + (run.owner * blocks_.size() + run.first) * block_bytes_, cell.w,
              run.count * block_bytes_);
}

template <typename T>
void FarTraffic::AddInRankOrder() {
  for (size_t b = 0; b < blocks_.size(); ++b) {
    // 64 bits and more of significand: adding up must not cost more than lanes of 64 bits would.
    std::array<long double, kBlock64Elements> sums{};
    for (size_t rank = 0; rank < world_size_; ++rank) {
      std::array<T, kBlock64Elements> x;
      std::memcpy(x.data(), gathered_.data() + (rank * blocks_.size() + b) * block_bytes_, sizeof(x));
      for (size_t i = 0; i < x.size(); ++i) sums[i] += static_cast<long double>(x[i]);
    }
    std::array<T, kBlock64Elements> rounded;
    std::transform(sums.begin(), sums.end(), rounded.begin(), [](long double s) { return static_cast<T>(s); });
    sum_.StoreBlock(blocks_[b].block, rounded.data());
  }
}

void FarTraffic::Finish() { sum_.IsDouble() ? AddInRankOrder<double>() : AddInRankOrder<float>(); }

}  // namespace mlnet::worker
