// SPDX-License-Identifier: Apache-2.0
// Sums of floats as block fixed point: probes first, then data packets, each carrying the block exponents of
// the packet one pool later; what the lanes cannot hold is left to the fix-up stream (repair_traffic.h).
// Why: the exact common exponent is known before a block is quantised, so there is no scaling factor to
// choose, and the result depends on the data alone.
#pragma once

#include "quantize.h"
#include "quantize64.h"
#include "traffic/marks.h"
#include "traffic/traffic.h"

namespace mlnet::worker {

/// 32 elements that their lanes would round too far: which ones of the tensor, and the E of their block.
struct OpenBlock {
  uint64_t block = 0;
  int largest = 0;
  size_t high = 0;  // index of the sums of its high lanes; of wide blocks
};

/// Wide blocks travel in two lanes an element, the first as high as the others', the second this low one.
struct LowLanes {
  int bits = 32;        // of the lane
  int log2_levels = 0;  // low bits in it: world_size of them do not carry
  int log2_range = 0;   // R of both lanes as one number
  std::vector<OpenBlock> blocks;

  LowLanes(int lane_bits, const LaneFormat& high, int world_size);
};
using HighSums = std::array<uint32_t, kBlock64Elements>;

class FloatTraffic final : public Traffic {
 public:
  FloatTraffic(const CollectiveSpec& spec, const JobShape& job, Counters& counters);

  Shape ShapeOf(uint64_t packet) const override;
  bool IsReady(uint64_t packet) const override;
  bool IsProbe(uint64_t packet) const override { return packet < probes_; }
  uint8_t Fill(uint64_t packet, bool is_retry, std::span<uint64_t> words, uint8_t* exps) override;
  void Take(uint64_t packet, const mlnet_cell& cell) override;
  void TakeReceipt(uint64_t packet, const mlnet_cell& cell) override;
  bool NeedsRepair() const override {
    return !flagged_.empty() || !half_wide_.blocks.empty() || !wide_.blocks.empty() || !far_.empty();
  }
  std::vector<std::unique_ptr<Traffic>> Repairs() override;
  void Finish() override;

  // For the fix-up stream.
  bool IsDouble() const { return spec_.dtype == DataType::kFloat64; }
  const JobShape& job() const { return job_; }
  uint32_t packet_elements() const { return packet_elements_; }
  Marks& own_marks() { return own_marks_; }
  Marks& merged_marks() { return merged_marks_; }
  const HighSums& HighSumsOf(const OpenBlock& block) const { return high_sums_[block.high]; }
  /// The input of an open block; fewer than 32 elements at the end of the tensor.
  size_t LoadBlock(uint64_t block, float* to) const;
  size_t LoadBlock(uint64_t block, double* to) const;
  void StoreBlock(uint64_t block, const float* sums) { StoreFloatSums(FirstOf(block), CountOf(block), sums); }
  void StoreBlock(uint64_t block, const double* sums) { window_.Write(FirstOf(block), CountOf(block), sums); }

 private:
  enum class Width { kNarrow, kHalfWide, kWide, kFar };

  static size_t FirstOf(uint64_t open_block) { return open_block * kBlock64Elements; }
  size_t CountOf(uint64_t open_block) const {
    return std::min<size_t>(kBlock64Elements, spec_.count - FirstOf(open_block));
  }
  size_t ElementsOf(uint64_t data_packet) const;
  const void* At(size_t element) const {
    return static_cast<const std::byte*>(spec_.in) + element * SizeOf(spec_.dtype);
  }
  /// The elements of a data packet as floats: the caller's own where they are, else in `scratch`.
  std::span<const float> FloatsOf(uint64_t data_packet, std::span<float> scratch) const;
  std::span<const double> DoublesOf(uint64_t data_packet) const;
  PacketExps& CommonOf(uint64_t data_packet) { return common_[data_packet % common_.size()]; }

  void Measure(uint64_t data_packet, PacketExps& exps) const;
  void FillProbe(uint64_t probe, std::span<uint64_t> words) const;
  bool FillLanes(uint64_t data_packet, bool is_retry, std::span<uint64_t> words);
  bool FillLanes64(uint64_t data_packet, bool is_retry, std::span<uint64_t> words);
  void FillHigh(uint64_t data_packet, std::span<const float> x, uint32_t* lanes) const;
  void NoteResidual(uint64_t data_packet, std::span<const float> x, const void* lanes);

  /// Whether all blocks are narrow, whatever their exponents.
  bool IsNeverOpen() const { return format_.bits >= 32 && !spec_.keeps_small; }
  Width WidthOf(const PacketExps& exps, size_t block) const;
  const LowLanes* LowLanesOf(Width width) const;  // null: neither half wide nor wide
  uint32_t OpenMask(const PacketExps& exps) const;  // bit b: block b of the packet is not narrow
  void Learn(uint64_t data_packet, const uint8_t* exps);
  void TakeProbe(uint64_t probe, const mlnet_cell& cell);
  void TakeLanes(uint64_t data_packet, const mlnet_cell& cell);
  void TakeLanes64(uint64_t data_packet, const mlnet_cell& cell);
  void TakeHigh(uint64_t data_packet, const mlnet_cell& cell);
  void StoreFloatSums(size_t first, size_t count, const float* sums);
  void StoreSpecial(size_t element, uint8_t mark);

  const CollectiveSpec spec_;
  const JobShape job_;
  Counters& counters_;
  const Window window_;
  const LaneFormat format_;  // of float64: 64 bits
  const uint32_t block_elements_;
  const uint32_t packet_blocks_;
  const uint32_t packet_elements_;
  const uint64_t data_packets_;
  uint32_t probes_ = 0;
  uint32_t probe_covers_ = 1;  // data packets per probe
  uint32_t covered_ = 0;       // data packets whose exponents the probes carry: min(data packets, P)

  std::vector<PacketExps> common_;  // merged exponents, by data packet mod P
  std::vector<bool> probe_answered_;
  LowLanes half_wide_, wide_;
  std::vector<OpenBlock> far_;
  std::vector<HighSums> high_sums_;
  std::vector<size_t> first_high_;  // of a packet's wide blocks, by data packet mod P
  std::vector<uint64_t> flagged_;  // data packets with an element that is not finite on some rank
  Marks own_marks_, merged_marks_;
};

}  // namespace mlnet::worker
