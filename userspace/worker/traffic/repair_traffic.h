// SPDX-License-Identifier: Apache-2.0
// The fix-up stream of a sum of floats, in this order: marks of elements that are not finite (OR), the second
// lanes of wide blocks (ADD64), first of 16, then of 32 bits, blocks that not even those can hold (gathered).
// Why: all ranks know from the results which blocks these are, so nothing is asked and nothing is announced.
// Each refers to the traffic it repairs, which the lane keeps until the last repair is done.
#pragma once

#include "traffic/float_traffic.h"

namespace mlnet::worker {

class MarkTraffic final : public Traffic {
 public:
  MarkTraffic(FloatTraffic& sum, std::span<const uint64_t> flagged);
  Shape ShapeOf(uint64_t packet) const override;
  uint8_t Fill(uint64_t packet, bool is_retry, std::span<uint64_t> words, uint8_t* exps) override;
  void Take(uint64_t packet, const mlnet_cell& cell) override;

 private:
  std::span<const uint64_t> FlaggedOf(uint64_t packet) const;

  FloatTraffic& sum_;
  const std::span<const uint64_t> flagged_;
  const size_t stride_;         // bytes of the marks of one data packet, whole blocks
  const size_t packet_covers_;  // data packets per fix-up packet
};

class WideTraffic final : public Traffic {
 public:
  WideTraffic(FloatTraffic& sum, const LowLanes& low);
  Shape ShapeOf(uint64_t packet) const override;
  uint8_t Fill(uint64_t packet, bool is_retry, std::span<uint64_t> words, uint8_t* exps) override;
  void Take(uint64_t packet, const mlnet_cell& cell) override;

 private:
  std::span<const OpenBlock> BlocksOf(uint64_t packet) const;

  template <typename Lane>
  void FillLanes(uint64_t packet, Lane* to) const;
  template <typename Lane>
  void TakeLanes(uint64_t packet, const Lane* from, uint32_t weight);

  FloatTraffic& sum_;
  const LowLanes& low_;
  const size_t block_bytes_;
  const size_t packet_blocks_;
};

class FarTraffic final : public Traffic {
 public:
  FarTraffic(FloatTraffic& sum, std::span<const OpenBlock> blocks);
  Shape ShapeOf(uint64_t packet) const override;
  uint8_t Fill(uint64_t packet, bool is_retry, std::span<uint64_t> words, uint8_t* exps) override;
  void Take(uint64_t packet, const mlnet_cell& cell) override;
  void Finish() override;
  bool IsSummedByRanks() const override { return true; }

 private:
  struct Run {
    size_t owner, first, count;  // blocks
  };
  Run RunOf(uint64_t packet) const;
  template <typename T>
  void AddInRankOrder();

  FloatTraffic& sum_;
  const std::span<const OpenBlock> blocks_;
  const size_t world_size_;
  const size_t block_bytes_;
  const size_t packet_blocks_;
  std::vector<std::byte> gathered_;  // rank by rank, block by block
};

}  // namespace mlnet::worker
