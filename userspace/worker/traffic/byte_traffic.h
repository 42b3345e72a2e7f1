// SPDX-License-Identifier: Apache-2.0
// Copies through the slot engine: each packet has one owner, whose bytes everybody gets. Broadcast, scatter,
// gather, barrier; and sums of small float tensors, which are gathered and added in rank order.
#pragma once

#include "traffic/traffic.h"

namespace mlnet::worker {

class ByteTraffic : public Traffic {
 public:
  ByteTraffic(const CollectiveSpec& spec, const JobShape& job);

  Shape ShapeOf(uint64_t packet) const override;
  uint8_t Fill(uint64_t packet, bool is_retry, std::span<uint64_t> words, uint8_t* exps) override;
  void Take(uint64_t packet, const mlnet_cell& cell) override;

 private:
  struct Piece {
    int owner = -1;  // -1: nothing but the header, every rank takes part
    size_t offset = 0;
    size_t bytes = 0;
  };
  Piece PieceOf(uint64_t packet) const;

  const CollectiveSpec spec_;
  const JobShape job_;
  const size_t packet_bytes_;
  const Window window_;
};

/// Float adds in rank order, of values that were gathered as they are: what small tensors get, whose sums
/// people compare with those of one process.
class RankOrderTraffic final : public Traffic {
 public:
  RankOrderTraffic(const CollectiveSpec& spec, const JobShape& job);

  Shape ShapeOf(uint64_t packet) const override { return gather_->ShapeOf(packet); }
  uint8_t Fill(uint64_t packet, bool is_retry, std::span<uint64_t> words, uint8_t* exps) override {
    return gather_->Fill(packet, is_retry, words, exps);
  }
  void Take(uint64_t packet, const mlnet_cell& cell) override { gather_->Take(packet, cell); }
  void Finish() override;
  bool IsSummedByRanks() const override { return true; }

 private:
  const CollectiveSpec spec_;
  const int world_size_;
  std::vector<std::byte> gathered_;  // rank by rank
  std::unique_ptr<ByteTraffic> gather_;
};

}  // namespace mlnet::worker
