// SPDX-License-Identifier: Apache-2.0
// Highway compiles the part between the HWY_NAMESPACE lines once per instruction set.
#include "quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mlnet::worker {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Largest and smallest non-zero magnitude of each block, as float bits. Zeros wrap to the top of the
// unsigned range when 1 is taken away, so the minimum passes over them.
void MeasureBlocks(const float* HWY_RESTRICT x, size_t blocks, uint32_t* largest,
                   uint32_t* smallest_less_one) {
  const hn::CappedTag<uint32_t, kBlockElements> d;
  const auto mask = hn::Set(d, 0x7fffffffU);
  const auto one = hn::Set(d, 1U);
  for (size_t b = 0; b < blocks; ++b) {
    auto high = hn::Zero(d);
    auto low = hn::Set(d, 0xffffffffU);
    for (size_t i = 0; i < kBlockElements; i += hn::Lanes(d)) {
      const auto bits = hn::LoadU(d, reinterpret_cast<const uint32_t*>(x + b * kBlockElements + i));
      const auto magnitude = hn::And(bits, mask);
      high = hn::Max(high, magnitude);
      low = hn::Min(low, hn::Sub(magnitude, one));
    }
    largest[b] = hn::GetLane(hn::MaxOfLanes(d, high));
    smallest_less_one[b] = hn::GetLane(hn::MinOfLanes(d, low));
  }
}

void QuantizeBlocks(const float* HWY_RESTRICT x, size_t blocks, const float* first, const float* second,
                    uint32_t range, uint32_t* HWY_RESTRICT lanes) {
  const hn::CappedTag<float, kBlockElements> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::RebindToUnsigned<decltype(df)> du;
  const auto low = hn::Set(di, static_cast<int32_t>(0U - range));
  const auto high = hn::Set(di, static_cast<int32_t>(range - 1U));
  const auto bias = hn::Set(du, range);
  for (size_t b = 0; b < blocks; ++b) {
    const auto a = hn::Set(df, first[b]);
    const auto c = hn::Set(df, second[b]);
    for (size_t i = b * kBlockElements; i < (b + 1) * kBlockElements; i += hn::Lanes(df)) {
      const auto scaled = hn::Mul(hn::Mul(hn::LoadU(df, x + i), a), c);
      const auto q = hn::Min(hn::Max(hn::NearestInt(scaled), low), high);
      hn::StoreU(hn::Add(hn::BitCast(du, q), bias), du, lanes + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mlnet::worker
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mlnet::worker {

HWY_EXPORT(MeasureBlocks);
HWY_EXPORT(QuantizeBlocks);

namespace {

// Calls `run(x, first block, blocks)` over whole blocks of x, the last one padded with zeros.
template <typename Run>
void OverBlocks(std::span<const float> x, Run run) {
  const size_t whole = x.size() / kBlockElements;
  run(x.data(), size_t{0}, whole);
  const size_t rest = x.size() % kBlockElements;
  if (rest == 0) return;
  std::array<float, kBlockElements> padded{};
  std::memcpy(padded.data(), x.data() + whole * kBlockElements, rest * sizeof(float));
  run(padded.data(), whole, size_t{1});
}

}  // namespace

int Log2Range(int world_size) { return 31 - std::bit_width(static_cast<unsigned>(world_size) - 1U); }

void MeasureExps(std::span<const float> x, PacketExps& exps) {
  exps.fill(0);
  std::array<uint32_t, MLNET_BLOCKS_MAX> largest;
  std::array<uint32_t, MLNET_BLOCKS_MAX> smallest;
  size_t total = 0;
  OverBlocks(x, [&](const float* from, size_t first, size_t blocks) {
    HWY_DYNAMIC_DISPATCH(MeasureBlocks)(from, blocks, &largest[first], &smallest[first]);
    total = first + blocks;
  });
  for (size_t b = 0; b < total; ++b) {
    if (largest[b] == 0) continue;  // all zero codes as 0, 0
    // Subnormals have biased exponent 0 and count as 1.
    exps[2 * b] = static_cast<uint8_t>(std::max(1U, largest[b] >> 23));
    exps[2 * b + 1] = static_cast<uint8_t>(255U - std::max(1U, (smallest[b] + 1U) >> 23));
  }
}

void Quantize(std::span<const float> x, const PacketExps& common, int log2_range, uint32_t* lanes) {
  std::array<float, MLNET_BLOCKS_MAX> first;
  std::array<float, MLNET_BLOCKS_MAX> second;
  for (size_t b = 0; b < MLNET_BLOCKS_MAX; ++b) {
    // x * R / T with T = 2^(E - 126). Both halves of the exponent are representable for every E.
    const int shift = log2_range + 126 - common[2 * b];
    first[b] = std::ldexp(1.0F, shift / 2);
    second[b] = std::ldexp(1.0F, shift - shift / 2);
  }
  const uint32_t range = 1U << log2_range;
  size_t total = 0;
  OverBlocks(x, [&](const float* from, size_t at, size_t blocks) {
    HWY_DYNAMIC_DISPATCH(QuantizeBlocks)
    (from, blocks, &first[at], &second[at], range, lanes + at * kBlockElements);
    total = at + blocks;
  });
  for (size_t b = 0; b < total; ++b) {
    if (common[2 * b] != kExpNonFinite && common[2 * b] != 0) continue;
    std::fill_n(lanes + b * kBlockElements, kBlockElements, range);
  }
}

bool HasNonFinite(const PacketExps& common) {
  for (size_t b = 0; b < MLNET_BLOCKS_MAX; ++b) {
    if (common[2 * b] == kExpNonFinite) return true;
  }
  return false;
}

uint32_t CountWideBlocks(const PacketExps& common, int log2_range) {
  uint32_t wide = 0;
  for (size_t b = 0; b < MLNET_BLOCKS_MAX; ++b) {
    const int largest = common[2 * b];
    if (largest == 0 || largest == kExpNonFinite) continue;
    const int smallest = 255 - common[2 * b + 1];
    if (log2_range - (largest - smallest) < kWideBits) ++wide;
  }
  return wide;
}

}  // namespace mlnet::worker
#endif
