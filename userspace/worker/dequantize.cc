// SPDX-License-Identifier: Apache-2.0
// Highway compiles the part between the HWY_NAMESPACE lines once per instruction set.
#include "dequantize.h"

#include <array>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dequantize.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mlnet::worker {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DoubleTag = hn::CappedTag<double, 32>;
using UintTag = hn::Rebind<uint32_t, DoubleTag>;

HWY_INLINE hn::VFromD<UintTag> LoadLanes(const uint32_t* from) { return hn::LoadU(UintTag(), from); }
HWY_INLINE hn::VFromD<UintTag> LoadLanes(const uint16_t* from) {
  return hn::PromoteTo(UintTag(), hn::LoadU(hn::Rebind<uint16_t, DoubleTag>(), from));
}
HWY_INLINE hn::VFromD<UintTag> LoadLanes(const uint8_t* from) {
  return hn::PromoteTo(UintTag(), hn::LoadU(hn::Rebind<uint8_t, DoubleTag>(), from));
}

// In double, S * T / R is exact for every exponent, so the conversion to float is the only rounding,
// also where the result is subnormal.
template <typename Lane>
void DequantizeLanes(const Lane* HWY_RESTRICT lanes, size_t blocks, uint32_t block_elements,
                     const double* scale, uint32_t bias, float* HWY_RESTRICT out) {
  const DoubleTag dd;
  const hn::Rebind<int32_t, DoubleTag> di;
  const hn::Rebind<float, DoubleTag> df;
  const auto offset = hn::Set(UintTag(), bias);
  for (size_t b = 0; b < blocks; ++b) {
    const auto factor = hn::Set(dd, scale[b]);
    for (size_t i = b * block_elements; i < (b + 1) * block_elements; i += hn::Lanes(dd)) {
      __builtin_prefetch(out + i + kFetchAhead, 1);
      const auto sum = hn::BitCast(di, hn::Sub(LoadLanes(lanes + i), offset));
      hn::StoreU(hn::DemoteTo(df, hn::Mul(hn::PromoteTo(dd, sum), factor)), df, out + i);
    }
  }
}

void DequantizeBlocks(const void* lanes, size_t blocks, int bits, uint32_t block_elements, const double* scale, uint32_t bias,
                      float* out) {
  if (bits == 32) DequantizeLanes(static_cast<const uint32_t*>(lanes), blocks, block_elements, scale, bias, out);
  if (bits == 16) DequantizeLanes(static_cast<const uint16_t*>(lanes), blocks, block_elements, scale, bias, out);
  if (bits == 8) DequantizeLanes(static_cast<const uint8_t*>(lanes), blocks, block_elements, scale, bias, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace mlnet::worker
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mlnet::worker {

HWY_EXPORT(DequantizeBlocks);

void Dequantize(const void* lanes, const PacketExps& common, const LaneFormat& format, uint32_t weight,
                std::span<float> out) {
  std::array<double, MLNET_PAIRS_MAX> scale;
  for (size_t b = 0; b < MLNET_PAIRS_MAX; ++b) {
    const int exponent = common[2 * b];
    scale[b] = exponent == 0 ? 0.0 : PowerOfTwo64(exponent - 126 - format.log2_range);
  }
  const uint32_t bias = weight << format.log2_range;
  const size_t whole = out.size() / format.block_elements;
  const auto run = HWY_DYNAMIC_DISPATCH(DequantizeBlocks);
  run(lanes, whole, format.bits, format.block_elements, scale.data(), bias, out.data());
  const size_t rest = out.size() % format.block_elements;
  if (rest == 0) return;
  std::array<float, kBlockFloatsMax> padded;
  const auto* last = static_cast<const std::byte*>(lanes) + whole * format.block_elements * static_cast<size_t>(format.bits) / 8;
  run(last, 1, format.bits, format.block_elements, &scale[whole], bias, padded.data());
  std::memcpy(out.data() + whole * format.block_elements, padded.data(), rest * sizeof(float));
}

}  // namespace mlnet::worker
#endif
