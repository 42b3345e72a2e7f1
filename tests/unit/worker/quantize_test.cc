// SPDX-License-Identifier: Apache-2.0
// Stages 3 and 8 against a reference in long double that shares no code with them.
#include "quantize.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>

#include "dequantize.h"

namespace mlnet::worker {
namespace {

constexpr size_t kElements = MLNET_PAIRS_MAX * 32;



// Biased exponent by its definition; subnormals count as 1.
int ReferenceExponent(float x) {
  int exponent = 0;
  std::frexp(std::fabs(x), &exponent);  // |x| = f * 2^exponent, f in [0.5, 1)
  return std::max(1, exponent + 126);
}

long double ReferenceRange(int bits, int n) {
  const long double levels = std::floor((std::ldexp(1.0L, bits) - 1) / n) + 1;
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
  int bits;
  std::vector<std::vector<float>> in;
  uint32_t blocks = MLNET_BLOCKS_MTU1500;
};

// 128 bytes of lanes, or 256 in larger packets.
size_t BlockElements(const Call& call) { return (call.blocks > 11 ? 2048 : 1024) / static_cast<size_t>(call.bits); }

// n ranks with `size` elements; values of a rank cluster around an exponent, as gradients do, or spread
// over the whole range.
rc::Gen<Call> AnyCall() {
  return rc::gen::mapcat(
      rc::gen::tuple(rc::gen::inRange(1, 65), rc::gen::inRange<size_t>(1, kElements + 1),
                     rc::gen::arbitrary<uint32_t>(), rc::gen::inRange(0, 3), rc::gen::element(32, 16, 8), rc::gen::element(1U, 2U)),
      [](const std::tuple<int, size_t, uint32_t, int, int, uint32_t>& shape) {
        const auto [n, some, seed, style, lane_bits, per_pair] = shape;
        const size_t size = some * per_pair;
        std::mt19937_64 random(seed);
        Call call{n, lane_bits, {}, MLNET_PAIRS_MAX * per_pair};
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
  const LaneFormat format = LaneFormat::Of(call.bits, call.n, call.blocks);
  std::vector<PacketExps> local(call.in.size());
  for (size_t r = 0; r < call.in.size(); ++r) MeasureExps(call.in[r], format.block_elements, local[r]);
  const PacketExps common = Merge(local);
  std::vector<uint64_t> sums(MLNET_WORDS_MAX);
  for (const auto& x : call.in) {
    std::vector<uint64_t> lanes(MLNET_WORDS_MAX);
    Quantize(x, common, format, 0, {}, lanes.data());
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += lanes[i];
  }
  std::vector<float> out(call.in[0].size());
  Dequantize(sums.data(), common, format, static_cast<uint32_t>(call.n), out);
  if (common_out != nullptr) *common_out = common;
  return out;
}

TEST(Quantize, range_is_the_largest_power_of_two_that_cannot_carry) {
  for (int bits : {8, 16, 32}) {
    for (int n = 1; n <= 64; ++n) {
      EXPECT_EQ(std::ldexp(1.0L, Log2Range(bits, n)), ReferenceRange(bits, n)) << n;
      // n times the largest lane fits.
      const uint64_t largest_lane = (2ULL << Log2Range(bits, n)) - 1;
      EXPECT_LE(static_cast<uint64_t>(n) * largest_lane, (1ULL << bits) - 1) << n;
    }
  }
}

RC_GTEST_PROP(Quantize, exponents_are_those_of_the_extremes_of_each_block, ()) {
  const auto size = *rc::gen::inRange<size_t>(1, kElements + 1);
  const auto x = *rc::gen::container<std::vector<float>>(size, AnyFinite());
  const size_t each = *rc::gen::element<size_t>(32, 64, 128, 256);
  PacketExps exps;
  MeasureExps(x, static_cast<uint32_t>(each), exps);
  for (size_t b = 0; b < MLNET_PAIRS_MAX; ++b) {
    int largest = 0, smallest = 0;
    for (size_t i = b * each; i < std::min(size, (b + 1) * each); ++i) {
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
  const size_t each = BlockElements(call);
  for (size_t block = 0; block < out.size(); block += each) {
    const size_t end = std::min(out.size(), block + each);
    long double most = 0;
    for (const auto& x : call.in) {
      for (size_t i = block; i < end; ++i) most = std::max(most, std::fabs(static_cast<long double>(x[i])));
    }
    if (call.bits < 32) most = std::max(most, std::ldexp(1.0L, -126));  // the traffic repairs such blocks
    const long double bound = call.n * most * std::ldexp(1.0L, ceil_log2 + 1 - call.bits);
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
  const long double range = ReferenceRange(call.bits, call.n);
  for (size_t i = 0; i < out.size(); ++i) {
    const int exponent = common[2 * (i / BlockElements(call))];
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

// The bound is no gift: ranks that all lose half a step the same way reach it.
TEST(Quantize, inputs_exist_that_reach_a_quarter_of_the_bound) {
  for (int bits : {8, 16, 32}) {
    for (int n : {2, 3, 4, 16, 64}) {
      const double step = std::ldexp(1.0, 1 - Log2Range(bits, n));  // T = 2 for a block whose largest is 1
      // A tie rounds to even, downwards here; float32 holds 4096.5 steps.
      const auto x = static_cast<float>((bits == 32 ? 4096.5 : 0.5) * step);
      const auto out = Sum({n, bits, std::vector(static_cast<size_t>(n), std::vector<float>{1.0F, x})});
      const double bound = n * std::ldexp(1.0, static_cast<int>(std::ceil(std::log2(n))) + 1 - bits);
      EXPECT_GE(n * double{x} - double{out[1]}, bound / 4) << bits << " bits, " << n << " ranks";
    }
  }
}

TEST(Quantize, stochastic_rounding_is_right_on_average_and_repeats) {
  constexpr size_t kCount = 704;
  const std::vector<float> x(kCount, 0.3F);
  for (int bits : {8, 16}) {
    const LaneFormat format = LaneFormat::Of(bits, 4);
    PacketExps exps;
    exps.fill(bits == 8 ? 128 : 132);  // steps of 1/8 and of 1/256
    const double step = std::ldexp(1.0, exps[0] - 126 - format.log2_range);
    double sum = 0;
    std::set<float> seen;
    for (uint32_t seed = 0; seed < 64; ++seed) {
      std::array<uint64_t, MLNET_WORDS_MAX> lanes, again;
      const auto packet = std::span(x);
      Quantize(packet, exps, format, 0, Dither{seed, seed * 1000}, lanes.data());
      Quantize(packet, exps, format, 0, Dither{seed, seed * 1000}, again.data());
      ASSERT_EQ(std::memcmp(lanes.data(), again.data(), packet.size() * static_cast<size_t>(bits) / 8), 0);
      std::vector<float> out(packet.size());
      Dequantize(lanes.data(), exps, format, 1, out);
      for (float value : out) {
        sum += value;
        seen.insert(value);
      }
    }
    EXPECT_EQ(seen.size(), 2u) << "the two multiples of the step around 0.3";
    // 45,056 draws of a two-valued variable: five standard deviations of the mean.
    EXPECT_NEAR(sum / (64 * kCount), 0.3, 5 * step / 2 / std::sqrt(64.0 * kCount));
  }
}

TEST(Quantize, negative_zero_counts_as_zero_and_comes_back_positive) {
  const std::vector<float> zeros(40, -0.0F);
  PacketExps exps;
  MeasureExps(zeros, 32, exps);
  EXPECT_EQ(exps, PacketExps{});
  for (float x : Sum({2, 32, {zeros, zeros}})) EXPECT_EQ(std::bit_cast<uint32_t>(x), 0u);
}

TEST(Quantize, what_is_not_finite_counts_as_zero_and_is_told) {
  for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(100, 1.0F), clean(100, 1.0F);
    x[70] = bad;
    clean[70] = 0;
    PacketExps exps, clean_exps;
    MeasureExps(x, 32, exps);
    MeasureExps(clean, 32, clean_exps);
    EXPECT_EQ(exps, clean_exps);
    std::vector<uint32_t> lanes(128), clean_lanes(128);
    EXPECT_FALSE(Quantize(x, exps, LaneFormat::Of(32, 2), 0, {}, lanes.data()));
    EXPECT_TRUE(Quantize(clean, exps, LaneFormat::Of(32, 2), 0, {}, clean_lanes.data()));
    EXPECT_EQ(lanes, clean_lanes);
  }
}

TEST(Quantize, sums_of_every_exponent_are_rounded_once_also_where_they_become_subnormal) {
  std::mt19937_64 random(1);
  for (const int bits : {32, 16, 8}) {
    for (const int n : {1, 3, 64}) {
      const LaneFormat format = LaneFormat::Of(bits, n, MLNET_PAIRS_MAX);
      const auto range = int64_t{1} << format.log2_range;
      const int64_t most = n * (range - 1), least = -n * range;
      for (int exponent = 1; exponent < 255; ++exponent) {
        PacketExps common{};
        common[0] = static_cast<uint8_t>(exponent);
        std::vector<int64_t> sums = {0, 1, -1, most, least, most / 2, least / 2 - 1};
        while (sums.size() < format.block_elements) sums.push_back((least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1))) >> random() % 31);
        std::array<std::byte, MLNET_BLOCK_BYTES> lanes{};
        for (size_t i = 0; i < sums.size(); ++i) {
          const auto biased = static_cast<uint64_t>(sums[i] + n * range);
          std::memcpy(&lanes[i * static_cast<size_t>(bits) / 8], &biased, static_cast<size_t>(bits) / 8);
        }
        std::vector<float> out(format.block_elements);
        Dequantize(lanes.data(), common, format, static_cast<uint32_t>(n), out);
        for (size_t i = 0; i < out.size(); ++i) {
          // The definition; the compiler's own conversion to float is the one rounding.
          const auto value = static_cast<float>(std::ldexp(static_cast<long double>(sums[i]), exponent - 126) / static_cast<long double>(range));
          ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(value)) << bits << " bits, " << n << " ranks, exponent " << exponent << ", sum " << sums[i];
        }
      }
    }
  }
}

TEST(Quantize, a_skipped_block_says_zero) {
  const std::vector<float> x(96, 1.0F);
  PacketExps exps;
  MeasureExps(x, 32, exps);
  std::vector<uint32_t> lanes(96);
  Quantize(x, exps, LaneFormat::Of(32, 4), 0b010, {}, lanes.data());
  for (size_t i = 32; i < 64; ++i) EXPECT_EQ(lanes[i], 1U << 29);
  EXPECT_NE(lanes[0], 1U << 29);
  EXPECT_NE(lanes[64], 1U << 29);
}

TEST(Quantize, the_last_block_is_padded_with_zeros_and_nothing_is_written_behind) {
  std::vector<uint32_t> lanes(96, 0xdeadbeef);
  const std::vector<float> x(33, 0.5F);
  const LaneFormat format = LaneFormat::Of(32, 4);
  PacketExps exps;
  MeasureExps(x, 32, exps);
  Quantize(x, exps, format, 0, {}, lanes.data());
  for (size_t i = 33; i < 64; ++i) EXPECT_EQ(lanes[i], 1U << 29) << i;
  for (size_t i = 64; i < 96; ++i) EXPECT_EQ(lanes[i], 0xdeadbeefU) << i;
  std::vector<float> out(34, 7.0F);
  Dequantize(lanes.data(), exps, format, 1, std::span(out).first(33));
  EXPECT_EQ(out[32], 0.5F);
  EXPECT_EQ(out[33], 7.0F);
}

}  // namespace
}  // namespace mlnet::worker
