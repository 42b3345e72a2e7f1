// SPDX-License-Identifier: Apache-2.0
#include "ring/agreement.h"

#include <algorithm>
#include <bit>
#include <string>

namespace mlnet::worker {
namespace {

uint64_t EndOf(const Held& held) {
  for (size_t i = held.bits.size(); i-- > 0;) {
    if (held.bits[i] != 0) return held.oldest + i * 64 + static_cast<unsigned>(std::bit_width(held.bits[i]));
  }
  return held.oldest;
}

}  // namespace

bool Held::Has(uint64_t seq) const {
  if (seq < oldest) return true;
  const uint64_t ahead = seq - oldest;
  return ahead < bits.size() * 64 && (bits[ahead / 64] >> ahead % 64 & 1) != 0;
}

Result<Settled> Settle(std::span<const Held> by_rank, uint32_t slots) {
  const auto slowest = std::min_element(by_rank.begin(), by_rank.end(), [](const Held& a, const Held& b) { return a.oldest < b.oldest; });
  Settled settled{slowest->oldest, std::vector<int>(slots, kSummedAgain)};
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (EndOf(by_rank[rank]) <= settled.base + slots) continue;
    return Err(ErrorCode::kProtocol,
               "rank " + std::to_string(rank) + " holds the result of packet " + std::to_string(EndOf(by_rank[rank]) - 1) + ", more than " +
                   std::to_string(slots) + " ahead of rank " + std::to_string(slowest - by_rank.begin()) + " at " + std::to_string(settled.base),
               "all hosts must run the same mlnet version");
  }
  for (uint32_t i = 0; i < slots; ++i) {
    const auto has = [seq = settled.base + i](const Held& held) { return held.Has(seq); };
    const auto first = std::find_if(by_rank.begin(), by_rank.end(), has);
    if (first == by_rank.end()) continue;
    settled.holder[i] = std::all_of(first, by_rank.end(), has) && first == by_rank.begin() ? kWithAll : static_cast<int>(first - by_rank.begin());
  }
  return settled;
}

}  // namespace mlnet::worker
