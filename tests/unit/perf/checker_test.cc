// SPDX-License-Identifier: Apache-2.0
// The checker must find a single wrong element, and must not cry wolf at the edge of the promise.
#include "mlnet-perf/checker.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "mlnet-perf/inputs.h"

namespace mlnet::perf {
namespace {

constexpr uint64_t kSeed = 77;

/// The correctly rounded sums, by plain double arithmetic: exact for these inputs.
std::vector<float> RightFloats(int world_size, size_t count) {
  std::vector<float> sums(count);
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int rank = 0; rank < world_size; ++rank) sum += FloatInput(kSeed, rank, i);
    sums[i] = static_cast<float>(sum);
  }
  return sums;
}

double BlockMax(int world_size, size_t index, size_t count) {
  double max = 0;
  const size_t first = index / 32 * 32;
  for (size_t i = first; i < std::min(first + 32, count); ++i) {
    for (int rank = 0; rank < world_size; ++rank)
      max = std::max(max, std::fabs(double{FloatInput(kSeed, rank, i)}));
  }
  return max;
}

uint64_t Wrong(int world_size, const std::vector<float>& result, Promise promise = Promise::kBlockExponent) {
  return CountWrong(DataType::kFloat32, promise, kSeed, world_size, result.data(), 0, result.size());
}

class FloatChecker : public testing::TestWithParam<int> {};

TEST_P(FloatChecker, AcceptsRightSumsOfAnySize) {
  for (size_t count : {1, 3, 31, 32, 33, 353, 5000})
    EXPECT_EQ(Wrong(GetParam(), RightFloats(GetParam(), count)), 0u) << count;
}

TEST_P(FloatChecker, FindsASingleWrongElement) {
  const size_t count = 1000;
  const auto right = RightFloats(GetParam(), count);
  for (size_t i : {0, 31, 32, 517, 999}) {
    auto result = right;
    // Two bounds and two units in the last place away: just outside of what is promised.
    const double step = 2 * BlockBound(GetParam(), BlockMax(GetParam(), i, count));
    const float away = static_cast<float>(result[i] + step);
    result[i] = std::nextafter(std::nextafter(away, HUGE_VALF), HUGE_VALF);
    EXPECT_EQ(Wrong(GetParam(), result), 1u) << i;
  }
}

TEST_P(FloatChecker, AcceptsWhatTheBoundAllows) {
  const size_t count = 1000;
  const auto right = RightFloats(GetParam(), count);
  for (size_t i : {0, 31, 32, 517, 999}) {
    auto result = right;
    result[i] = static_cast<float>(result[i] + 0.5 * BlockBound(GetParam(), BlockMax(GetParam(), i, count)));
    EXPECT_EQ(Wrong(GetParam(), result), 0u) << i;
  }
}

TEST_P(FloatChecker, FindsNanAndInfinity) {
  auto result = RightFloats(GetParam(), 100);
  result[5] = std::numeric_limits<float>::quiet_NaN();
  result[50] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Wrong(GetParam(), result), 2u);
}

INSTANTIATE_TEST_SUITE_P(Worlds, FloatChecker, testing::Values(1, 2, 3, 4, 8, 16));

TEST(FloatChecker, SumsOfAnotherSeedAreWrongAlmostEverywhere) {
  const auto result = RightFloats(4, 1024);
  EXPECT_GT(CountWrong(DataType::kFloat32, Promise::kBlockExponent, kSeed + 1, 4, result.data(), 0, 1024),
            900u);
}

TEST(FloatChecker, AMissingRankIsFound) {
  const auto result = RightFloats(3, 1024);
  EXPECT_GT(Wrong(4, result), 900u);
}

TEST(FloatChecker, LooksAtItsShareOnly) {
  auto result = RightFloats(4, 256);
  result[10] += 1000;
  result[100] += 1000;
  EXPECT_EQ(CountWrong(DataType::kFloat32, Promise::kBlockExponent, kSeed, 4, result.data(), 0, 64), 1u);
  EXPECT_EQ(CountWrong(DataType::kFloat32, Promise::kBlockExponent, kSeed, 4, result.data(), 64, 192), 1u);
}

TEST(FloatChecker, PeersMayRoundEveryAdd) {
  const size_t count = 4096;
  std::vector<float> result(count);
  for (size_t i = 0; i < count; ++i) {
    for (int rank = 0; rank < 8; ++rank) result[i] += FloatInput(kSeed, rank, i);
  }
  EXPECT_EQ(Wrong(8, result, Promise::kFloatAdds), 0u);
  EXPECT_GT(Wrong(8, result, Promise::kBlockExponent), 0u);  // which is why the promise of mlnet is another
  result[77] *= 1.00001F;
  result[78] += 1000;
  EXPECT_EQ(Wrong(8, result, Promise::kFloatAdds), 2u);
}

TEST(BlockBound, FollowsTheFormula) {
  EXPECT_DOUBLE_EQ(BlockBound(1, 1.0), std::ldexp(1.0, -31));
  EXPECT_DOUBLE_EQ(BlockBound(4, 2.0), 4 * 2.0 * std::ldexp(1.0, 2 + 1 - 32));
  EXPECT_DOUBLE_EQ(BlockBound(5, 1.0), 5 * std::ldexp(1.0, 3 + 1 - 32));
}

TEST(Int32Checker, IsExactAndWraps) {
  std::vector<int32_t> result(100);
  bool has_wrapped = false;
  for (size_t i = 0; i < result.size(); ++i) {
    int64_t sum = 0;
    for (int rank = 0; rank < 4; ++rank) sum += Int32Input(kSeed, rank, i);
    has_wrapped |= sum != static_cast<int32_t>(sum);
    result[i] = static_cast<int32_t>(sum);
  }
  EXPECT_TRUE(has_wrapped);
  const auto wrong = [&] {
    return CountWrong(DataType::kInt32, Promise::kBlockExponent, kSeed, 4, result.data(), 0, 100);
  };
  EXPECT_EQ(wrong(), 0u);
  result[99] ^= 1;
  EXPECT_EQ(wrong(), 1u);
}

TEST(CountDifferent, ComparesBits) {
  const float a[] = {0.0F, 1.0F, NAN}, b[] = {-0.0F, 1.0F, NAN};
  EXPECT_EQ(CountDifferent(a, b, 3), 1u);
}

TEST(Inputs, AreDistinctAndSpanMagnitudes) {
  std::set<float> values;
  size_t zeros = 0;
  float smallest = HUGE_VALF, largest = 0;
  for (size_t i = 0; i < 10000; ++i) {
    const float x = FloatInput(kSeed, 1, i);
    if (x == 0) {
      ++zeros;
      continue;
    }
    values.insert(x);
    smallest = std::min(smallest, std::fabs(x));
    largest = std::max(largest, std::fabs(x));
  }
  EXPECT_GT(zeros, 100u);
  EXPECT_LT(zeros, 2000u);
  EXPECT_GT(values.size(), (10000 - zeros) * 999 / 1000);
  EXPECT_GT(largest / smallest, 1e6F);
  EXPECT_NE(FloatInput(kSeed, 0, 5), FloatInput(kSeed, 1, 5));
}

}  // namespace
}  // namespace mlnet::perf
