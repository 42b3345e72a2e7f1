// SPDX-License-Identifier: Apache-2.0
// Highway compiles the part between the HWY_NAMESPACE lines once per instruction set.
#include "dequantize.h"

#include <array>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dequantize.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mlnet::worker {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// In double, S * T / R is exact for every exponent, so the conversion to float is the only rounding,
// also where the result is subnormal.
void DequantizeBlocks(const uint32_t* HWY_RESTRICT lanes, size_t blocks, const double* scale, uint32_t bias,
                      float* HWY_RESTRICT out) {
  const hn::CappedTag<double, kBlockElements> dd;
  const hn::Rebind<uint32_t, decltype(dd)> du;
  const hn::Rebind<int32_t, decltype(dd)> di;
  const hn::Rebind<float, decltype(dd)> df;
  const auto offset = hn::Set(du, bias);
  for (size_t b = 0; b < blocks; ++b) {
    const auto factor = hn::Set(dd, scale[b]);
    for (size_t i = b * kBlockElements; i < (b + 1) * kBlockElements; i += hn::Lanes(dd)) {
      const auto sum = hn::BitCast(di, hn::Sub(hn::LoadU(du, lanes + i), offset));
      hn::StoreU(hn::DemoteTo(df, hn::Mul(hn::PromoteTo(dd, sum), factor)), df, out + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mlnet::worker
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mlnet::worker {

HWY_EXPORT(DequantizeBlocks);

void Dequantize(const uint32_t* lanes, const PacketExps& common, int log2_range, uint32_t weight,
                std::span<float> out) {
  std::array<double, MLNET_BLOCKS_MAX> scale;
  for (size_t b = 0; b < MLNET_BLOCKS_MAX; ++b) {
    const int exponent = common[2 * b];
    scale[b] = exponent == 0 ? 0.0 : std::ldexp(1.0, exponent - 126 - log2_range);
  }
  const uint32_t bias = weight << log2_range;
  const size_t whole = out.size() / kBlockElements;
  const auto run = HWY_DYNAMIC_DISPATCH(DequantizeBlocks);
  run(lanes, whole, scale.data(), bias, out.data());
  const size_t rest = out.size() % kBlockElements;
  if (rest == 0) return;
  std::array<float, kBlockElements> padded;
  run(lanes + whole * kBlockElements, 1, &scale[whole], bias, padded.data());
  std::memcpy(out.data() + whole * kBlockElements, padded.data(), rest * sizeof(float));
}

}  // namespace mlnet::worker
#endif
