// SPDX-License-Identifier: Apache-2.0
// What happens to the packets that were on their way when the ring took over. Pure: every rank works it out from the
// same reports, so all do the same.
// Why nobody returns anything else than the others: a result that any rank holds is the kernel's, and goes to all; only
// what nobody holds is summed again. By rules 2 and 3 the kernel cannot have been more than a pool ahead of the slowest
// rank, and a result that somebody misses still lies in the inbox of each rank that holds it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mlnet/error.h"

namespace mlnet::worker {

/// Of one rank in one stream: the results it has, consumed or not. Those below `oldest`, and these.
struct Held {
  uint64_t oldest = 0;         // lowest seq whose result it has not
  std::vector<uint64_t> bits;  // bit i: it has that of oldest + i; as many as the pool has slots

  bool Has(uint64_t seq) const;
  void Add(uint64_t seq) { bits[(seq - oldest) / 64] |= 1ULL << (seq - oldest) % 64; }
};
inline Held HeldFrom(uint64_t oldest, uint32_t slots) { return {oldest, std::vector<uint64_t>((slots + 63) / 64)}; }

inline constexpr int kSummedAgain = -1;
inline constexpr int kWithAll = -2;

/// Of one stream: what becomes of each seq of a pool from `base` on. Those below are with all ranks, those behind were
/// never begun by all.
struct Settled {
  uint64_t base = 0;
  std::vector<int> holder;  // of base + i: the rank that passes its result on, or one of the two above

  int HolderOf(uint64_t seq) const { return seq < base ? kWithAll : seq - base < holder.size() ? holder[seq - base] : kSummedAgain; }
};

/// By rank. kProtocol where the reports contradict the rules, so that no result could be trusted.
Result<Settled> Settle(std::span<const Held> by_rank, uint32_t slots);

}  // namespace mlnet::worker
