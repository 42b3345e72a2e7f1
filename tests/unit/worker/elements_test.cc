// SPDX-License-Identifier: Apache-2.0
// Every float16 and bfloat16 against their definition; roundings against the compiler's own float16.
#include "elements.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

namespace mlnet::worker {
namespace {

double HalfByDefinition(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

float Load(DataType dtype, uint16_t bits) {
  float value;
  LoadFloats(dtype, &bits, 1, &value);
  return value;
}

uint16_t Store(DataType dtype, float value) {
  uint16_t bits;
  StoreFloats(dtype, &value, 1, &bits);
  return bits;
}

TEST(Elements, every_float16_and_bfloat16_survives_the_way_there_and_back) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float half = Load(DataType::kFloat16, bits), brain = Load(DataType::kBFloat16, bits);
    if (std::isnan(HalfByDefinition(bits))) {
      EXPECT_TRUE(std::isnan(half));
      EXPECT_TRUE(std::isnan(Load(DataType::kFloat16, Store(DataType::kFloat16, half))));
    } else {
      ASSERT_EQ(double{half}, HalfByDefinition(bits)) << i;
      ASSERT_EQ(Store(DataType::kFloat16, half), bits);
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(brain), i << 16);
    if (!std::isnan(brain)) {
      ASSERT_EQ(Store(DataType::kBFloat16, brain), bits);
    }
  }
}

// Nearest, ties to even, found by comparing with both neighbours.
void ExpectNearest(DataType dtype, float x, uint16_t stored) {
  const double got = Load(dtype, stored), exact = x;
  if (std::isinf(got)) return;  // its threshold has a test of its own
  for (int step : {-1, 1}) {
    const auto neighbour = static_cast<uint16_t>(stored + step);
    const double other = Load(dtype, neighbour);
    if (std::isnan(other) || (neighbour ^ stored) & 0x8000) continue;
    const double mine = std::fabs(got - exact), theirs = std::fabs(other - exact);
    ASSERT_LE(mine, theirs) << x;
    if (mine == theirs) {
      ASSERT_EQ(stored % 2, 0) << x;
    }
  }
}

TEST(Elements, storing_rounds_to_the_nearest_and_ties_to_even) {
  std::mt19937 random(1);
  for (int i = 0; i < 200'000; ++i) {
    float x = std::ldexp(static_cast<float>(static_cast<int32_t>(random())), static_cast<int>(random() % 48) - 62);
    if (i % 4 == 0) {  // a tie of float16
      const uint16_t bits = random() & 0x7bff;
      x = static_cast<float>((HalfByDefinition(bits) + HalfByDefinition(static_cast<uint16_t>(bits + 1))) / 2);
      if (!std::isfinite(x)) continue;
    }
    ExpectNearest(DataType::kFloat16, x, Store(DataType::kFloat16, x));
    ExpectNearest(DataType::kBFloat16, x, Store(DataType::kBFloat16, x));
  }
}

TEST(Elements, too_large_becomes_infinite_where_ieee_says_so) {
  EXPECT_EQ(Store(DataType::kFloat16, 65519.996F), 0x7bff);
  EXPECT_EQ(Store(DataType::kFloat16, 65520.0F), 0x7c00);
  EXPECT_EQ(Store(DataType::kFloat16, -1e30F), 0xfc00);
  EXPECT_EQ(Store(DataType::kBFloat16, 3.4e38F), 0x7f80);
  EXPECT_EQ(Store(DataType::kFloat16, -INFINITY), 0xfc00);
}

}  // namespace
}  // namespace mlnet::worker
