// SPDX-License-Identifier: Apache-2.0
// Highway compiles the part between the HWY_NAMESPACE lines once per instruction set.
#include "quantize.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#ifndef MLNET_WORKER_QUANTIZE_CALL
#define MLNET_WORKER_QUANTIZE_CALL
namespace mlnet::worker {

/// Some blocks of one packet. `first` and `second`: per block, the two factors whose product is R / T.
struct QuantizeCall {
  const float* x;
  size_t blocks;
  uint32_t block_elements;
  const float* first;
  const float* second;
  uint32_t range;
  bool is_dithered;
  uint32_t seed;
  uint32_t element;
  void* lanes;
};

}  // namespace mlnet::worker
#endif

HWY_BEFORE_NAMESPACE();
namespace mlnet::worker {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A multiple of it makes every block, so no loop has a rest.
using FloatTag = hn::CappedTag<float, 32>;
using IntTag = hn::RebindToSigned<FloatTag>;
using UintTag = hn::RebindToUnsigned<FloatTag>;

// Largest and smallest non-zero magnitude of each block, as float bits. Zeros wrap to the top of the
// unsigned range when 1 is taken away, so the minimum passes over them.
void MeasureBlocks(const float* HWY_RESTRICT x, size_t blocks, uint32_t block_elements, uint32_t* largest,
                   uint32_t* smallest_less_one) {
  const UintTag d;
  const auto mask = hn::Set(d, 0x7fffffffU);
  const auto one = hn::Set(d, 1U);
  for (size_t b = 0; b < blocks; ++b) {
    auto high = hn::Zero(d);
    auto low = hn::Set(d, 0xffffffffU);
    for (size_t i = 0; i < block_elements; i += hn::Lanes(d)) {
      __builtin_prefetch(x + b * block_elements + i + kFetchAhead);
      const auto bits = hn::LoadU(d, reinterpret_cast<const uint32_t*>(x + b * block_elements + i));
      const auto magnitude = hn::And(bits, mask);
      high = hn::Max(high, magnitude);
      low = hn::Min(low, hn::Sub(magnitude, one));
    }
    largest[b] = hn::GetLane(hn::MaxOfLanes(d, high));
    smallest_less_one[b] = hn::GetLane(hn::MinOfLanes(d, low));
  }
}

// Uniform in [0, 1) by element: the mixer "lowbias32" over a Weyl sequence.
template <class V>
hn::VFromD<FloatTag> Uniform(V element, uint32_t seed) {
  const UintTag d;
  auto h = hn::Add(hn::Mul(element, hn::Set(d, 0x9e3779b9U)), hn::Set(d, seed));
  h = hn::Xor(h, hn::ShiftRight<16>(h));
  h = hn::Mul(h, hn::Set(d, 0x7feb352dU));
  h = hn::Xor(h, hn::ShiftRight<15>(h));
  h = hn::Mul(h, hn::Set(d, 0x846ca68bU));
  h = hn::Xor(h, hn::ShiftRight<16>(h));
  const auto top = hn::BitCast(IntTag(), hn::ShiftRight<8>(h));
  return hn::Mul(hn::ConvertTo(FloatTag(), top), hn::Set(FloatTag(), 0x1p-24F));
}

template <class V>
void StoreLanes(V biased, uint32_t* to) {
  hn::StoreU(hn::BitCast(UintTag(), biased), UintTag(), to);
}
template <class V>
void StoreLanes(V biased, uint16_t* to) {
  const hn::Rebind<uint16_t, FloatTag> d;
  hn::StoreU(hn::DemoteTo(d, biased), d, to);
}
template <class V>
void StoreLanes(V biased, uint8_t* to) {
  const hn::Rebind<uint8_t, FloatTag> d;
  hn::StoreU(hn::DemoteTo(d, biased), d, to);
}

template <typename Lane, bool kIsDithered>
bool QuantizeLanes(const QuantizeCall& call) {
  const FloatTag df;
  const IntTag di;
  const UintTag du;
  const auto low = hn::Set(di, static_cast<int32_t>(0U - call.range));
  const auto high = hn::Set(di, static_cast<int32_t>(call.range - 1U));
  const auto bias = hn::Set(di, static_cast<int32_t>(call.range));
  const auto most = hn::Set(df, std::numeric_limits<float>::max());
  auto* lanes = static_cast<Lane*>(call.lanes);
  auto all_finite = hn::Eq(hn::Zero(df), hn::Zero(df));
  for (size_t b = 0; b < call.blocks; ++b) {
    const auto a = hn::Set(df, call.first[b]);
    const auto c = hn::Set(df, call.second[b]);
    for (size_t i = b * call.block_elements; i < (b + 1) * call.block_elements; i += hn::Lanes(df)) {
      __builtin_prefetch(call.x + i + kFetchAhead);
      const auto x = hn::LoadU(df, call.x + i);
      const auto is_finite = hn::Le(hn::Abs(x), most);
      all_finite = hn::And(all_finite, is_finite);
      auto scaled = hn::Mul(hn::Mul(hn::IfThenElseZero(is_finite, x), a), c);
      if constexpr (kIsDithered) {
        const auto element = hn::Iota(du, call.element + static_cast<uint32_t>(i));
        scaled = hn::Floor(hn::Add(scaled, Uniform(element, call.seed)));
      }
      const auto q = hn::Min(hn::Max(hn::NearestInt(scaled), low), high);
      StoreLanes(hn::Add(q, bias), lanes + i);
    }
  }
  return hn::AllTrue(df, all_finite);
}

bool QuantizeBlocks(const QuantizeCall& call, int bits) {
  if (bits == 32) return QuantizeLanes<uint32_t, false>(call);
  if (bits == 16) {
    return call.is_dithered ? QuantizeLanes<uint16_t, true>(call) : QuantizeLanes<uint16_t, false>(call);
  }
  return call.is_dithered ? QuantizeLanes<uint8_t, true>(call) : QuantizeLanes<uint8_t, false>(call);
}

}  // namespace HWY_NAMESPACE
}  // namespace mlnet::worker
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mlnet::worker {

HWY_EXPORT(MeasureBlocks);
HWY_EXPORT(QuantizeBlocks);

namespace {

constexpr uint32_t kInfinityBits = 0x7f800000U;

// Calls `run(x, first block, blocks)` over whole blocks of x, the last one padded with zeros.
template <typename Run>
void OverBlocks(std::span<const float> x, uint32_t block_elements, Run run) {
  const size_t whole = x.size() / block_elements;
  if (whole > 0) run(x.data(), size_t{0}, whole);
  const size_t rest = x.size() % block_elements;
  if (rest == 0) return;
  std::array<float, kBlockFloatsMax> padded{};
  std::memcpy(padded.data(), x.data() + whole * block_elements, rest * sizeof(float));
  run(padded.data(), whole, size_t{1});
}

// The slow way, where a block has an element that is not finite.
void MeasureFinite(const float* x, uint32_t block_elements, uint32_t& largest, uint32_t& smallest_less_one) {
  largest = 0;
  smallest_less_one = UINT32_MAX;
  for (uint32_t i = 0; i < block_elements; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffU;
    if (magnitude >= kInfinityBits) continue;
    largest = std::max(largest, magnitude);
    smallest_less_one = std::min(smallest_less_one, magnitude - 1);
  }
}

// Skipped and all-zero blocks say q = 0.
void NeutralBlock(const LaneFormat& format, size_t block, void* lanes) {
  const uint32_t bias = 1U << format.log2_range;
  const size_t n = format.block_elements;
  if (format.bits == 32) std::fill_n(static_cast<uint32_t*>(lanes) + block * n, n, bias);
  if (format.bits == 16) std::fill_n(static_cast<uint16_t*>(lanes) + block * n, n, static_cast<uint16_t>(bias));
  if (format.bits == 8) std::fill_n(static_cast<uint8_t*>(lanes) + block * n, n, static_cast<uint8_t>(bias));
}

}  // namespace

int Log2Range(int bits, int world_size) {
  const uint64_t most = bits == 64 ? UINT64_MAX : (uint64_t{1} << bits) - 1;
  const uint64_t n = static_cast<uint64_t>(world_size);
  int log2_range = bits - 1;  // as if alone: 2R - 1 = most
  while (((uint64_t{2} << log2_range) - 1) > most / n) --log2_range;
  return log2_range;
}

LaneFormat LaneFormat::Of(int bits, int world_size, uint32_t blocks) {
  const auto bits_of_pair = static_cast<int>(MLNET_BLOCKS_PER_PAIR(blocks) * MLNET_BLOCK_BYTES * 8);
  return {bits, Log2Range(bits, world_size), static_cast<uint32_t>(bits_of_pair / bits)};
}

void MeasureExps(std::span<const float> x, uint32_t block_elements, PacketExps& exps) {
  exps.fill(0);
  std::array<uint32_t, MLNET_PAIRS_MAX> largest;
  std::array<uint32_t, MLNET_PAIRS_MAX> smallest;
  size_t total = 0;
  OverBlocks(x, block_elements, [&](const float* from, size_t first, size_t blocks) {
    HWY_DYNAMIC_DISPATCH(MeasureBlocks)(from, blocks, block_elements, &largest[first], &smallest[first]);
    for (size_t b = 0; b < blocks; ++b) {
      if (largest[first + b] < kInfinityBits) continue;
      MeasureFinite(from + b * block_elements, block_elements, largest[first + b], smallest[first + b]);
    }
    total = first + blocks;
  });
  for (size_t b = 0; b < total; ++b) {
    if (largest[b] == 0) continue;  // all zero codes as 0, 0
    // Subnormals have biased exponent 0 and count as 1.
    exps[2 * b] = static_cast<uint8_t>(std::max(1U, largest[b] >> 23));
    exps[2 * b + 1] = static_cast<uint8_t>(255U - std::max(1U, (smallest[b] + 1U) >> 23));
  }
}

bool Quantize(std::span<const float> x, const PacketExps& common, const LaneFormat& format, uint32_t skip,
              const std::optional<Dither>& dither, void* lanes) {
  std::array<float, MLNET_PAIRS_MAX> first;
  std::array<float, MLNET_PAIRS_MAX> second;
  for (size_t b = 0; b < MLNET_PAIRS_MAX; ++b) {
    // x * R / T with T = 2^(E - 126). Both halves of the exponent are those of normal numbers for every E.
    const int shift = format.log2_range + 126 - common[2 * b];
    first[b] = PowerOfTwo32(shift / 2);
    second[b] = PowerOfTwo32(shift - shift / 2);
  }
  bool all_finite = true;
  size_t total = 0;
  OverBlocks(x, format.block_elements, [&](const float* from, size_t at, size_t blocks) {
    const size_t element = at * format.block_elements;
    const QuantizeCall call{from,
                            blocks,
                            format.block_elements,
                            &first[at],
                            &second[at],
                            1U << format.log2_range,
                            dither.has_value(),
                            dither ? dither->seed : 0,
                            (dither ? dither->first_element : 0) + static_cast<uint32_t>(element),
                            static_cast<std::byte*>(lanes) + element * static_cast<size_t>(format.bits) / 8};
    all_finite &= HWY_DYNAMIC_DISPATCH(QuantizeBlocks)(call, format.bits);
    total = at + blocks;
  });
  for (size_t b = 0; b < total; ++b) {
    if (common[2 * b] == 0 || (skip >> b & 1U) != 0) NeutralBlock(format, b, lanes);
  }
  return all_finite;
}

}  // namespace mlnet::worker
#endif
