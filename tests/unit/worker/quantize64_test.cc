// SPDX-License-Identifier: Apache-2.0
// Lanes of 64 bits against the definition in 113-bit arithmetic.
#include "quantize64.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace mlnet::worker {
namespace {

__extension__ using Quad = __float128;

Quad PowerOfTwo(int exponent) {
  Quad power = 1;
  for (int i = 0; i < std::abs(exponent); ++i) power = exponent > 0 ? power * 2 : power / 2;
  return power;
}

TEST(Quantize64, a_sum_is_within_half_a_step_a_rank_and_one_rounding) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    const int n = 2 + static_cast<int>(random() % 63), log2_range = Log2Range(64, n);
    const int center = round % 2 == 0 ? static_cast<int>(random() % 2000) - 1000 : static_cast<int>(random() % 4) - 1070;
    std::vector<double> x(static_cast<size_t>(n));
    int largest = 0;
    for (double& value : x) {
      value = std::ldexp(static_cast<double>(static_cast<int64_t>(random())), center - 63 - static_cast<int>(random() % 8));
      if (value != 0) largest = std::max(largest, std::max(1, static_cast<int>(std::bit_cast<uint64_t>(value) >> 52 & 0x7ff)));
    }
    uint64_t lanes = 0;
    Quad exact = 0;
    for (const double value : x) {
      lanes += QuantizeOne64(value, largest, kFloat64Bias, log2_range);
      exact += Quad{value};
    }
    const double sum = DequantizeOne64(lanes, largest, log2_range, static_cast<uint32_t>(n));
    const Quad step = PowerOfTwo(largest - 1022 - log2_range);
    const Quad error = Quad{sum} > exact ? Quad{sum} - exact : exact - Quad{sum};
    const Quad rounding = std::max(std::ldexp(std::fabs(sum), -53), std::numeric_limits<double>::denorm_min() / 2);
    ASSERT_TRUE(error <= n * step / 2 + rounding + n * step * PowerOfTwo(-20)) << round;
  }
}

TEST(Quantize64, extremes_clamp_and_what_is_not_finite_is_zero) {
  const uint64_t range = 1ULL << 62;  // two ranks
  EXPECT_EQ(QuantizeOne64(-std::ldexp(1.0, 1) , 1023, kFloat64Bias, 62), 0u);
  EXPECT_EQ(QuantizeOne64(std::ldexp(1.0, 1), 1023, kFloat64Bias, 62), 2 * range - 1);
  EXPECT_EQ(QuantizeOne64(NAN, 1023, kFloat64Bias, 62), range);
  EXPECT_EQ(QuantizeOne64(INFINITY, 1023, kFloat64Bias, 62), range);
  EXPECT_EQ(QuantizeOne64(1, 0, kFloat64Bias, 62), range);
}

// A wide block of floats: the same definition, for every exponent that a float can have.
TEST(Quantize64, a_block_of_floats_is_the_definition_in_one_rounding) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 4000; ++round) {
    const int largest = 1 + static_cast<int>(random() % 254), log2_range = 30 + static_cast<int>(random() % 32);
    const uint32_t weight = 1 + static_cast<uint32_t>(random() % 3);
    std::vector<float> x(1 + random() % 32);
    for (float& value : x) {
      const uint32_t exponent = largest - std::min<uint32_t>(static_cast<uint32_t>(largest), static_cast<uint32_t>(random() % 60));
      value = std::bit_cast<float>(exponent << 23 | static_cast<uint32_t>(random() & 0x807fffff));
    }
    std::vector<uint64_t> lanes(x.size());
    std::vector<float> sums(x.size());
    QuantizeWide(x, largest, log2_range, lanes.data());
    std::vector<uint64_t> added(lanes);
    for (uint64_t& lane : added) lane *= weight;
    DequantizeWide(added, largest, log2_range, weight, sums.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const Quad scaled = Quad{x[i]} * PowerOfTwo(log2_range - (largest - 126));
      const Quad q = Quad{static_cast<long double>(lanes[i])} - PowerOfTwo(log2_range);
      const Quad apart = q > scaled ? q - scaled : scaled - q;
      ASSERT_TRUE(apart <= Quad{0.5}) << x[i] << " with E " << largest << " and R 2^" << log2_range;
      const Quad sum = q * static_cast<int>(weight) * PowerOfTwo(largest - 126 - log2_range);
      ASSERT_EQ(sums[i], static_cast<float>(sum));
    }
  }
  const float special[3] = {NAN, -INFINITY, 0};
  uint64_t lanes[3];
  QuantizeWide(special, 127, 40, lanes);
  for (const uint64_t lane : lanes) EXPECT_EQ(lane, 1ULL << 40);
}

TEST(Quantize64, exponents_have_16_bits_and_leave_out_what_is_not_finite) {
  std::vector<double> x(70, 0.0);
  x[3] = 1.0;      // 1023
  x[5] = 0x1p-40;  // 983
  x[6] = INFINITY;
  x[40] = 5e-324;  // subnormal: 1
  PacketExps exps;
  MeasureExps64(x, kBlock64Elements, exps);
  EXPECT_EQ(RangeOf64(exps, 0).largest, 1023);
  EXPECT_EQ(RangeOf64(exps, 0).smallest, 983);
  EXPECT_EQ(RangeOf64(exps, 1).largest, 1);
  EXPECT_EQ(RangeOf64(exps, 1).smallest, 1);
  EXPECT_EQ(RangeOf64(exps, 2).largest, 0);
}

}  // namespace
}  // namespace mlnet::worker
