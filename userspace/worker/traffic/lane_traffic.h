// SPDX-License-Identifier: Apache-2.0
// Reductions whose lanes are exact: integer sums, minimum and maximum of every type, bitwise operations.
// Why one traffic: each is a pair of element-wise codings around one operation of the slot engine (table
// in lane_traffic.cc). Minimum and maximum travel as keys whose unsigned order is that of the values; a
// minimum as the maximum of complements, a bitwise and as the or of complements.
#pragma once

#include "traffic/traffic.h"

namespace mlnet::worker {

/// How the elements of one (type, operation) travel.
struct LaneCoding {
  uint8_t op_wire = 0;
  uint32_t lane_bytes = 0;
  void (*encode)(const void* elements, size_t count, void* lanes) = nullptr;
  void (*decode)(const void* lanes, size_t count, void* elements) = nullptr;
};

/// nullptr encode: there is none (bits of floats).
LaneCoding LaneCodingOf(DataType dtype, ReduceOp op);

class LaneTraffic final : public Traffic {
 public:
  LaneTraffic(const CollectiveSpec& spec, const JobShape& job);

  Shape ShapeOf(uint64_t packet) const override;
  uint8_t Fill(uint64_t packet, bool is_retry, std::span<uint64_t> words, uint8_t* exps) override;
  void Take(uint64_t packet, const mlnet_cell& cell) override;

 private:
  size_t ElementsOf(uint64_t packet) const;

  const CollectiveSpec spec_;
  const LaneCoding coding_;
  const size_t element_bytes_;
  const size_t packet_elements_;
  const Window window_;
};

}  // namespace mlnet::worker
