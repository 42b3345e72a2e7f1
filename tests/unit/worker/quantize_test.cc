// SPDX-License-Identifier: Apache-2.0
// Stages 3 and 8 against a reference in long double that shares no code with them.
#include "quantize.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "dequantize.h"

namespace mlnet::worker {
namespace {

constexpr size_t kElements = MLNET_BLOCKS_MAX * kBlockElements;

// Biased exponent by its definition; subnormals count as 1.
int ReferenceExponent(float x) {
  if (!std::isfinite(x)) return 255;
  int exponent = 0;
  std::frexp(std::fabs(x), &exponent);  // |x| = f * 2^exponent, f in [0.5, 1)
  return std::max(1, exponent + 126);
}

long double ReferenceRange(int n) {
  const long double levels = std::floor(4294967295.0L / n) + 1;
  long double range = 1;
  while (4 * range <= levels) range *= 2;
  return range;
}

// Any float32, all exponents alike, with zeros of both signs.
rc::Gen<float> AnyFinite() {
  return rc::gen::oneOf(
      rc::gen::map(rc::gen::resize(100, rc::gen::arbitrary<uint32_t>()),
                   [](uint32_t bits) {
                     // Spread over all exponents; 255 would be no finite number.
                     const uint32_t mixed = bits * 2654435761U;
                     const float x = std::bit_cast<float>(mixed);
                     return std::isfinite(x) ? x : std::bit_cast<float>(mixed & 0xff7fffffU);
                   }),
      rc::gen::element(0.0F, -0.0F, std::numeric_limits<float>::denorm_min(),
                       -std::numeric_limits<float>::min(), std::numeric_limits<float>::max(),
                       -std::numeric_limits<float>::max(), 1.0F));
}

struct Call {
  int n;
  std::vector<std::vector<float>> in;
};

// n ranks with `size` elements; values of a rank cluster around an exponent, as gradients do, or spread
// over the whole range.
rc::Gen<Call> AnyCall() {
  return rc::gen::mapcat(
      rc::gen::tuple(rc::gen::inRange(1, 65), rc::gen::inRange<size_t>(1, kElements + 1),
                     rc::gen::arbitrary<uint32_t>(), rc::gen::inRange(0, 3)),
      [](const std::tuple<int, size_t, uint32_t, int>& shape) {
        const auto [n, size, seed, style] = shape;
        std::mt19937_64 random(seed);
        Call call{n, {}};
        const int center = static_cast<int>(random() % 270) - 145;
        for (int r = 0; r < n; ++r) {
          std::vector<float> x(size);
          for (float& value : x) {
            const auto mantissa = std::ldexp(static_cast<float>(static_cast<int64_t>(random()) >> 40), -23);
            const int exponent = style == 0 ? center : center + static_cast<int>(random() % 40) - 20;
            value = std::ldexp(mantissa, std::min(exponent, 126));
            if (style == 2) {
              const auto bits = static_cast<uint32_t>(random());
              value = std::bit_cast<float>((bits >> 23 & 0xff) == 0xff ? bits & 0xff7fffffU : bits);
            }
          }
          call.in.push_back(std::move(x));
        }
        return rc::gen::just(call);
      });
}

PacketExps Merge(const std::vector<PacketExps>& all) {
  PacketExps merged{};
  for (const PacketExps& one : all) {
    for (size_t i = 0; i < merged.size(); ++i) merged[i] = std::max(merged[i], one[i]);
  }
  return merged;
}

// The whole way of one packet through n ranks and an adder of 64-bit words.
std::vector<float> Sum(const Call& call, PacketExps* common_out = nullptr) {
  std::vector<PacketExps> local(call.in.size());
  for (size_t r = 0; r < call.in.size(); ++r) MeasureExps(call.in[r], local[r]);
  const PacketExps common = Merge(local);
  std::vector<uint64_t> sums(kElements / 2);
  for (const auto& x : call.in) {
    std::vector<uint32_t> lanes(kElements);
    Quantize(x, common, Log2Range(call.n), lanes.data());
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] += lanes[2 * i] | static_cast<uint64_t>(lanes[2 * i + 1]) << 32;
    }
  }
  std::vector<uint32_t> total(kElements);
  std::memcpy(total.data(), sums.data(), kElements * 4);
  std::vector<float> out(call.in[0].size());
  Dequantize(total.data(), common, Log2Range(call.n), static_cast<uint32_t>(call.n), out);
  if (common_out != nullptr) *common_out = common;
  return out;
}

TEST(Quantize, range_is_the_largest_power_of_two_that_cannot_carry) {
  for (int n = 1; n <= 64; ++n) {
    EXPECT_EQ(std::ldexp(1.0L, Log2Range(n)), ReferenceRange(n)) << n;
    // n times the largest lane fits 32 bits.
    const uint64_t largest_lane = (2ULL << Log2Range(n)) - 1;
    EXPECT_LE(static_cast<uint64_t>(n) * largest_lane, 0xffffffffULL) << n;
  }
}

RC_GTEST_PROP(Quantize, exponents_are_those_of_the_extremes_of_each_block, ()) {
  const auto size = *rc::gen::inRange<size_t>(1, kElements + 1);
  const auto x = *rc::gen::container<std::vector<float>>(size, AnyFinite());
  PacketExps exps;
  MeasureExps(x, exps);
  for (size_t b = 0; b < MLNET_BLOCKS_MAX; ++b) {
    int largest = 0, smallest = 0;
    for (size_t i = b * kBlockElements; i < std::min(size, (b + 1) * kBlockElements); ++i) {
      if (x[i] == 0) continue;
      largest = std::max(largest, ReferenceExponent(x[i]));
      smallest = std::max(smallest, 255 - ReferenceExponent(x[i]));
    }
    RC_ASSERT(int{exps[2 * b]} == largest);
    RC_ASSERT(int{exps[2 * b + 1]} == smallest);
  }
}

RC_GTEST_PROP(Quantize, sums_of_1_to_64_ranks_stay_within_the_bound_over_the_whole_range, ()) {
  const Call call = *AnyCall();
  const auto out = Sum(call);
  int ceil_log2 = 0;
  while ((1 << ceil_log2) < call.n) ++ceil_log2;
  for (size_t block = 0; block < out.size(); block += kBlockElements) {
    const size_t end = std::min(out.size(), block + kBlockElements);
    long double most = 0;
    for (const auto& x : call.in) {
      for (size_t i = block; i < end; ++i) most = std::max(most, std::fabs(static_cast<long double>(x[i])));
    }
    const long double bound = call.n * most * std::ldexp(1.0L, ceil_log2 + 1 - 32);
    for (size_t i = block; i < end; ++i) {
      long double exact = 0;
      for (const auto& x : call.in) exact += x[i];
      if (std::fabs(exact) + bound > std::numeric_limits<float>::max()) continue;  // float32 itself overflows
      // Half a unit in the last place of the result: 2^-24 of it, or half the smallest subnormal.
      const long double rounding =
          std::max(std::ldexp(std::fabs(exact) + bound, -24), std::ldexp(1.0L, -150));
      RC_ASSERT(std::fabs(out[i] - exact) <= bound + rounding);
    }
  }
}

// The pure definition, element by element: q = clamp(rint(x R / T)), value = S T / R rounded once.
RC_GTEST_PROP(Quantize, lanes_and_values_equal_the_definition_bit_for_bit, ()) {
  const Call call = *AnyCall();
  PacketExps common;
  const auto out = Sum(call, &common);
  const long double range = ReferenceRange(call.n);
  for (size_t i = 0; i < out.size(); ++i) {
    const int exponent = common[2 * (i / kBlockElements)];
    if (exponent == 0) {
      RC_ASSERT(std::bit_cast<uint32_t>(out[i]) == 0u);
      continue;
    }
    const long double top = std::ldexp(1.0L, exponent - 126);
    long double sum = 0;
    for (const auto& x : call.in) {
      sum += std::min(range - 1, std::max(-range, std::nearbyint(x[i] * range / top)));
    }
    RC_ASSERT(std::bit_cast<uint32_t>(out[i]) ==
              std::bit_cast<uint32_t>(static_cast<float>(sum * top / range)));
  }
}

TEST(Quantize, negative_zero_counts_as_zero_and_comes_back_positive) {
  const std::vector<float> zeros(40, -0.0F);
  PacketExps exps;
  MeasureExps(zeros, exps);
  EXPECT_EQ(exps, PacketExps{});
  const auto out = Sum({2, {zeros, zeros}});
  for (float x : out) EXPECT_EQ(std::bit_cast<uint32_t>(x), 0u);
}

TEST(Quantize, a_non_finite_element_shows_as_255_and_its_block_sends_no_data) {
  for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(100, 1.0F);
    x[70] = bad;
    PacketExps exps;
    MeasureExps(x, exps);
    EXPECT_EQ(exps[4], kExpNonFinite);
    EXPECT_TRUE(HasNonFinite(exps));
    std::vector<uint32_t> lanes(4 * kBlockElements);
    Quantize(x, exps, 30, lanes.data());
    for (size_t i = 64; i < 96; ++i) EXPECT_EQ(lanes[i], 1U << 30);
    EXPECT_NE(lanes[0], 1U << 30);
  }
}

TEST(Quantize, the_last_block_is_padded_with_zeros_and_nothing_is_written_behind) {
  std::vector<uint32_t> lanes(3 * kBlockElements, 0xdeadbeef);
  const std::vector<float> x(33, 0.5F);
  PacketExps exps;
  MeasureExps(x, exps);
  Quantize(x, exps, 29, lanes.data());
  for (size_t i = 33; i < 64; ++i) EXPECT_EQ(lanes[i], 1U << 29) << i;
  for (size_t i = 64; i < 96; ++i) EXPECT_EQ(lanes[i], 0xdeadbeefU) << i;
  std::vector<float> out(34, 7.0F);
  Dequantize(lanes.data(), exps, 29, 1, std::span(out).first(33));
  EXPECT_EQ(out[32], 0.5F);
  EXPECT_EQ(out[33], 7.0F);
}

TEST(Quantize, a_block_is_wide_when_its_smallest_element_keeps_under_12_bits) {
  PacketExps exps{};
  exps[0] = 150;  // with R = 2^29 the largest has 29 bits, one 17 exponents below has 12
  exps[1] = 255 - (150 - 17);
  EXPECT_EQ(CountWideBlocks(exps, 29), 0u);
  exps[1] = 255 - (150 - 18);
  EXPECT_EQ(CountWideBlocks(exps, 29), 1u);
  exps[2] = kExpNonFinite;
  EXPECT_EQ(CountWideBlocks(exps, 29), 1u);
}

}  // namespace
}  // namespace mlnet::worker
