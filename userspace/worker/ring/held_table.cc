// SPDX-License-Identifier: Apache-2.0
#include "ring/held_table.h"

#include <algorithm>
#include <cstring>

namespace mlnet::worker {
namespace {

void Append(std::vector<std::byte>& out, uint64_t value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof(value));
}

uint64_t Next(std::span<const std::byte>& from) {
  uint64_t value;
  std::memcpy(&value, from.data(), sizeof(value));
  from = from.subspan(sizeof(value));
  return value;
}

}  // namespace

HeldTable::HeldTable(std::vector<RingLane> lanes, int world_size)
    : lanes_(std::move(lanes)), by_rank_(static_cast<size_t>(world_size)), num_missing_(by_rank_.size()) {}

std::vector<std::byte> HeldTable::Encode(int rank, const std::vector<Held>& held) const {
  std::vector<std::byte> report;
  Append(report, static_cast<uint64_t>(rank));
  for (const Held& lane : held) {
    Append(report, lane.oldest);
    for (const uint64_t bits : lane.bits) Append(report, bits);
  }
  return report;
}

Result<void> HeldTable::Take(std::span<const std::byte> report) {
  size_t words = 1;
  for (const RingLane& lane : lanes_) words += 1 + HeldFrom(0, lane.pool.slots()).bits.size();
  const Error misfit{ErrorCode::kProtocol, "a rank's report of its results does not fit this job", "all hosts must run the same mlnet version"};
  if (report.size() != words * sizeof(uint64_t)) return tl::make_unexpected(misfit);
  const uint64_t rank = Next(report);
  if (rank >= by_rank_.size()) return tl::make_unexpected(misfit);
  std::vector<Held> held;
  for (const RingLane& lane : lanes_) {
    Held& own = held.emplace_back(HeldFrom(Next(report), lane.pool.slots()));
    for (uint64_t& bits : own.bits) bits = Next(report);
  }
  if (!by_rank_[rank]) --num_missing_;
  by_rank_[rank] = std::move(held);
  return {};
}

int HeldTable::FirstMissing() const {
  const auto it = std::find_if(by_rank_.begin(), by_rank_.end(), [](const auto& held) { return !held.has_value(); });
  return static_cast<int>(it - by_rank_.begin());
}

Result<std::vector<Settled>> HeldTable::SettleAll() const {
  std::vector<Settled> settled;
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    std::vector<Held> held;
    for (const auto& of_rank : by_rank_) held.push_back((*of_rank)[lane]);
    auto one = Settle(held, lanes_[lane].pool.slots());
    if (!one) return tl::make_unexpected(one.error());
    settled.push_back(std::move(*one));
  }
  return settled;
}

}  // namespace mlnet::worker
