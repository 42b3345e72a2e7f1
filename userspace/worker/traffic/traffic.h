// SPDX-License-Identifier: Apache-2.0
// Stage 1 of the tensor path: a collective as packets, and what becomes of their results.
// Why: every rank must cut a tensor in the same way, and every kind of collective is only another way to
// fill words and to take them; the lane (lane.h) knows order, windows and timers, the traffic knows bytes.
// Invariants: (1) number and shape of the packets depend on the call and the job alone; (2) Fill gives the
// same payload whenever it is called for a packet whose result was not taken.
//   float_traffic.h   sums of floats as block fixed point        repair_traffic.h  its fix-up stream
//   lane_traffic.h    integers, minimum and maximum, bits        byte_traffic.h    copies; small float sums
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collective_spec.h"
#include "counters.h"
#include "mlnet/job.h"

namespace mlnet::worker {

/// What a traffic depends on beside the call.
struct JobShape {
  int rank = 0;
  int world_size = 1;
  uint32_t blocks = MLNET_BLOCKS_MTU1500;  // of a full packet
  uint32_t slots = 1;                  // P of the class
  uint64_t seed = 0;  // of stochastic rounding: different for each rank and collective
};

/// One packet, the same on all ranks but for `has_data`.
struct Shape {
  uint16_t words = 0;    // payload words, whole blocks
  uint8_t op_wire = 0;
  bool has_data = true;  // false: this rank adds nothing here
};

class Traffic {
 public:
  virtual ~Traffic() = default;

  uint64_t packets() const { return packets_; }
  virtual Shape ShapeOf(uint64_t packet) const = 0;
  /// Whether what the packet's payload depends on is known.
  virtual bool IsReady(uint64_t) const { return true; }
  virtual bool IsProbe(uint64_t) const { return false; }
  /// Writes the payload, all of it, and the trailer's exponents (zeroed before). Returns header flags.
  /// REQUIRES: ready, has_data, words.size() == ShapeOf(packet).words.
  virtual uint8_t Fill(uint64_t packet, bool is_retry, std::span<uint64_t> words, uint8_t* exps) = 0;
  /// The result of a packet; each once, in any order.
  virtual void Take(uint64_t packet, const mlnet_cell& cell) = 0;
  /// The same where the job's server took the words: flags and exponents are all there is.
  virtual void TakeReceipt(uint64_t, const mlnet_cell&) {}

  /// After the last result: what must be sent on the fix-up stream before Finish, usually nothing. The same
  /// on all ranks. What is returned refers to this traffic.
  virtual bool NeedsRepair() const { return false; }
  virtual std::vector<std::unique_ptr<Traffic>> Repairs() { return {}; }
  /// After the last result of this traffic and of its repairs.
  virtual void Finish() {}
  /// Whether the ranks do the adding, so that it must not be counted as the kernel's.
  virtual bool IsSummedByRanks() const { return false; }

 protected:
  uint64_t packets_ = 1;
};

/// Whether the ranks add this sum of floats in their order (JoinOptions::small_bytes).
bool IsSmallSum(const CollectiveSpec& spec, int world_size, size_t small_bytes);

/// The traffic of a call or of a part of it. `counters` outlives it.
std::unique_ptr<Traffic> MakeTraffic(const CollectiveSpec& spec, const JobShape& job, Counters& counters);

/// Words of whole blocks that hold `bytes`.
constexpr uint16_t WordsFor(uint64_t bytes) {
  return static_cast<uint16_t>((bytes + MLNET_BLOCK_BYTES - 1) / MLNET_BLOCK_BYTES * MLNET_BLOCK_WORDS);
}
constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

/// The part of a result that this rank keeps, in units of `unit_bytes`.
class Window {
 public:
  Window(const CollectiveSpec& spec, size_t unit_bytes, size_t count);
  /// Where units first..first+count-1 belong if all of them are wanted, else null.
  std::byte* Place(size_t first, size_t count) const;
  /// Copies those of the units that are wanted.
  void Write(size_t first, size_t count, const void* units) const;

 private:
  std::byte* out_;
  size_t first_, end_;
  size_t unit_bytes_;
};

}  // namespace mlnet::worker
