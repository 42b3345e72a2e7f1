// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/inputs.h"

#include <algorithm>
#include <cmath>

namespace mlnet::perf {
namespace {

constexpr uint64_t kAlikeElements = 32;  // neighbours that share an exponent, and are all zero or not
// Multiples of 2^(-11 - 38) up to 2^8: the sum of 64 has 63 bits, and the significand of a long double 64.
constexpr int kDigitsMax = 38;

uint64_t SplitMix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t OfElement(uint64_t seed, int rank, uint64_t index) {
  return SplitMix(seed + static_cast<uint64_t>(rank + 1) * 0xa0761d6478bd642fULL + index);
}

}  // namespace

uint64_t MixSeed(uint64_t seed, uint64_t a, uint64_t b) { return SplitMix(SplitMix(seed + a) + b); }

double FloatInput(const ElementType& type, uint64_t seed, int rank, uint64_t index) {
  const uint64_t of_block = SplitMix(seed ^ index / kAlikeElements * 0xd6e8feb86659fd93ULL);
  if (of_block % 16 == 0) return 0;  // a block that is zero on every rank
  const uint64_t h = OfElement(seed, rank, index);
  if (h >> 58 == 0) return 0;
  // All bits of the significand, a sign, and an exponent of block, rank and element: 2^-11 .. 2^8.
  const int digits = std::min(type.digits, kDigitsMax);
  const int64_t mantissa = static_cast<int64_t>(h & ((2ULL << digits) - 1)) - (int64_t{1} << digits);
  const int exponent = static_cast<int>(SplitMix(of_block + static_cast<uint64_t>(rank)) % 17) - 8 -
                       static_cast<int>(h >> 40 & 3);
  return std::ldexp(static_cast<double>(mantissa), exponent - digits);
}

int64_t IntegerInput(const ElementType& type, uint64_t seed, int rank, uint64_t index) {
  return Wrap(type, OfElement(seed, rank, index));
}

void FillInputs(const ElementType& type, uint64_t seed, int rank, void* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (type.IsFloat())
      StoreFloat(type, FloatInput(type, seed, rank, i), out, i);
    else
      StoreInteger(type, IntegerInput(type, seed, rank, i), out, i);
  }
}

float WholeInput(uint64_t seed, int rank, uint64_t index) {
  uint64_t z = (seed * 64 + static_cast<uint64_t>(rank)) * 0x9e3779b97f4a7c15 + index;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return static_cast<float>(z >> 54) - 512.0F;
}

}  // namespace mlnet::perf
