// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/inputs.h"

#include <cmath>

namespace mlnet::perf {
namespace {

uint64_t SplitMix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t MixSeed(uint64_t seed, uint64_t a, uint64_t b) { return SplitMix(SplitMix(seed + a) + b); }

float FloatInput(uint64_t seed, int rank, uint64_t index) {
  const uint64_t block = index / kBlockElements;
  const uint64_t of_block = SplitMix(seed ^ block * 0xd6e8feb86659fd93ULL);
  if (of_block % 16 == 0) return 0.0F;  // a block that is zero on every rank
  const uint64_t h = SplitMix(seed + static_cast<uint64_t>(rank + 1) * 0xa0761d6478bd642fULL + index);
  if (h >> 58 == 0) return 0.0F;
  // 24 significant bits, a sign, and an exponent of block, rank and element: 2^-11 .. 2^8.
  const auto mantissa = static_cast<int32_t>(h & 0xffffff) - 0x800000;
  const int exponent = static_cast<int>(SplitMix(of_block + static_cast<uint64_t>(rank)) % 17) - 8 -
                       static_cast<int>(h >> 32 & 3);
  return std::ldexp(static_cast<float>(mantissa), exponent - 23);
}

int32_t Int32Input(uint64_t seed, int rank, uint64_t index) {
  return static_cast<int32_t>(
      SplitMix(seed + static_cast<uint64_t>(rank + 1) * 0xa0761d6478bd642fULL + index));
}

void FillInputs(DataType dtype, uint64_t seed, int rank, void* out, size_t count) {
  if (dtype == DataType::kInt32) {
    auto* values = static_cast<int32_t*>(out);
    for (size_t i = 0; i < count; ++i) values[i] = Int32Input(seed, rank, i);
    return;
  }
  auto* values = static_cast<float*>(out);
  for (size_t i = 0; i < count; ++i) values[i] = FloatInput(seed, rank, i);
}

}  // namespace mlnet::perf
