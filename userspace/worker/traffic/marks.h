// SPDX-License-Identifier: Apache-2.0
// Which elements are not finite, two bits each, kept for the few packets that have any: bit 0 +Inf was seen,
// bit 1 -Inf, NaN sets both. OR over the ranks gives IEEE 754's sum: +Inf and -Inf together are NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <unordered_map>
#include <vector>

namespace mlnet::worker {

inline constexpr uint8_t kMarkPlus = 1, kMarkMinus = 2, kMarkNan = 3;

template <typename T>
uint8_t MarkOf(T x) {
  if (std::isfinite(x)) return 0;
  return std::isnan(x) ? kMarkNan : std::signbit(x) ? kMarkMinus : kMarkPlus;
}

class Marks {
 public:
  explicit Marks(size_t packet_elements) : bytes_((packet_elements + 3) / 4) {}

  size_t bytes() const { return bytes_; }
  template <typename T>
  void Note(uint64_t packet, std::span<const T> x) {
    std::vector<uint8_t>& bits = packets_[packet];
    bits.assign(bytes_, 0);
    for (size_t i = 0; i < x.size(); ++i) {
      bits[i / 4] |= static_cast<uint8_t>(MarkOf(x[i]) << (i % 4 * 2));
    }
  }
  void Set(uint64_t packet, const void* bits) {
    packets_[packet].resize(bytes_);
    std::memcpy(packets_[packet].data(), bits, bytes_);
  }
  /// Zeros where this packet has none.
  void Write(uint64_t packet, void* to) const {
    const auto it = packets_.find(packet);
    if (it == packets_.end()) std::memset(to, 0, bytes_);
    else std::memcpy(to, it->second.data(), bytes_);
  }
  uint8_t Of(uint64_t packet, size_t element) const {
    const auto it = packets_.find(packet);
    return it == packets_.end() ? 0 : it->second[element / 4] >> (element % 4 * 2) & 3;
  }

 private:
  size_t bytes_;
  std::unordered_map<uint64_t, std::vector<uint8_t>> packets_;
};

}  // namespace mlnet::worker
