// SPDX-License-Identifier: Apache-2.0
// The checker must find a single wrong element, and must not cry wolf at the edge of the promise.
#include "mlnet-perf/checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include "mlnet-perf/inputs.h"
#include "mlnet-perf/names.h"

namespace mlnet::perf {
namespace {

constexpr uint64_t kSeed = 77;
constexpr size_t kCount = 5000;

using Bytes = std::vector<std::byte>;

/// To the nearest value of the type: by the compiler, and by hand for bfloat16.
double Rounded(DataType dtype, double value) {
  if (dtype == DataType::kFloat64) return value;
  if (dtype == DataType::kFloat16) return static_cast<double>(static_cast<_Float16>(value));
  const auto float32 = static_cast<float>(value);
  if (dtype == DataType::kFloat32) return float32;
  const auto bits = std::bit_cast<uint32_t>(float32);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

/// Between neighbours of the type around x.
long double Spacing(DataType dtype, long double x) {
  const ElementType& type = TypeOf(dtype);
  const int exponent = x == 0 ? type.min_exponent : std::ilogb(x) + 1;
  return std::ldexp(1.0L, std::max(exponent, type.min_exponent) - type.digits);
}

struct Element {
  size_t at = 0;
  long double sum = 0, magnitude = 0;
  double max = 0;  // of the block
};

std::vector<Element> ElementsOf(const Reduction& reduction, size_t count) {
  const size_t block = BlockElements(reduction);
  std::vector<Element> elements(count);
  for (size_t first = 0; first < count; first += block) {
    const size_t end = std::min(first + block, count);
    double max = 0;
    for (size_t i = first; i < end; ++i) {
      elements[i].at = i;
      for (int rank = 0; rank < reduction.world_size; ++rank) {
        const double x = FloatInput(TypeOf(reduction.dtype), kSeed, rank, i);
        elements[i].sum += x;
        elements[i].magnitude += std::fabs(x);
        max = std::max(max, std::fabs(x));
      }
    }
    for (size_t i = first; i < end; ++i) elements[i].max = max;
  }
  return elements;
}

void Store(DataType dtype, long double value, Bytes& result, size_t i) {
  StoreFloat(TypeOf(dtype), Rounded(dtype, static_cast<double>(value)), result.data(), i);
}

/// The sums, correctly rounded.
Bytes RightSums(const Reduction& reduction, size_t count) {
  Bytes result(count * TypeOf(reduction.dtype).bytes);
  for (const Element& element : ElementsOf(reduction, count))
    Store(reduction.dtype, element.sum, result, element.at);
  return result;
}

uint64_t Wrong(const Reduction& reduction, const Bytes& result) {
  return CountWrong(reduction, kSeed, result.data(), 0, result.size() / TypeOf(reduction.dtype).bytes);
}

Reduction Float32(int world_size, Promise promise = Promise::kBlock) {
  return {DataType::kFloat32, ReduceOp::kSum, promise, WireType::kInt32, world_size, 128};
}

/// An element off by nine tenths of `bound` is right, one off by eleven is wrong.
void ExpectEdge(const Reduction& reduction, const std::function<long double(const Element&)>& bound) {
  Bytes result = RightSums(reduction, kCount);
  int tried = 0;
  for (const Element& element : ElementsOf(reduction, kCount)) {
    const long double edge = bound(element);
    // Only where the type is fine enough to show it.
    if (edge == 0 || Spacing(reduction.dtype, std::fabs(element.sum) + 2 * edge) > edge / 20) continue;
    for (const int sign : {1, -1}) {
      Store(reduction.dtype, element.sum + sign * 0.9L * edge, result, element.at);
      EXPECT_EQ(Wrong(reduction, result), 0u) << element.at;
      Store(reduction.dtype, element.sum + sign * 1.1L * edge, result, element.at);
      EXPECT_EQ(Wrong(reduction, result), 1u) << element.at;
    }
    Store(reduction.dtype, element.sum, result, element.at);
    if (++tried == 3) return;
  }
  EXPECT_GT(tried, 0) << "no element shows the bound";
}

std::vector<Reduction> AllFloatSums() {
  std::vector<Reduction> all;
  for (const int n : {1, 2, 3, 4, 8, 16}) {
    for (const DataType dtype :
         {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16, DataType::kFloat64}) {
      for (const WireType wire : {WireType::kInt32, WireType::kInt16, WireType::kInt8}) {
        if (dtype == DataType::kFloat64 && wire != WireType::kInt32) continue;
        all.push_back({dtype, ReduceOp::kSum, Promise::kBlock, wire, n});
      }
    }
  }
  return all;
}

class FloatSums : public testing::TestWithParam<Reduction> {};

TEST_P(FloatSums, OfAnySizeAreRight) {
  Reduction reduction = GetParam();
  for (size_t count : {1, 3, 31, 32, 33, 127, 129, 353, 5000}) {
    const Bytes result = RightSums(reduction, count);
    for (const Promise promise : {Promise::kBlock, Promise::kElement}) {
      reduction.promise = promise;
      EXPECT_EQ(Wrong(reduction, result), 0u) << count;
    }
  }
}

TEST_P(FloatSums, AreRightUpToTheBoundOfTheBlock) {
  const Reduction reduction = GetParam();
  const bool is_narrow = TypeOf(reduction.dtype).bytes == 2;
  if (is_narrow && reduction.wire == WireType::kInt32) return;  // rounding hides it: see the next test
  const int n = reduction.world_size, bits = reduction.dtype == DataType::kFloat64 ? 64
                                             : reduction.wire == WireType::kInt32  ? 32
                                             : reduction.wire == WireType::kInt16  ? 16
                                                                                   : 8;
  const auto log2_ceil = static_cast<int>(std::ceil(std::log2(n)));
  ExpectEdge(reduction, [&](const Element& element) {
    return n * std::ldexp(1.0L, log2_ceil + 1 - bits) * element.max;
  });
}

TEST_P(FloatSums, MayBeRoundedToTheTypeButNotMore) {
  const Reduction reduction = GetParam();
  if (reduction.wire != WireType::kInt32) return;
  Bytes result = RightSums(reduction, kCount);
  for (const Element& element : ElementsOf(reduction, kCount)) {
    if (std::fabs(element.sum) < element.max) continue;
    const long double bound = ErrorBound(reduction, element.max, element.magnitude);
    Store(reduction.dtype, element.sum + bound + 2 * Spacing(reduction.dtype, element.sum), result,
          element.at);
    EXPECT_EQ(Wrong(reduction, result), 1u) << element.at;
    return;
  }
  FAIL() << "no large element";
}

TEST_P(FloatSums, WithNanAndInfinityAreWrong) {
  const Reduction reduction = GetParam();
  const size_t bytes = TypeOf(reduction.dtype).bytes;
  Bytes result = RightSums(reduction, 200);
  // All ones is a NaN of every type; infinity has an empty fraction.
  std::fill_n(result.begin() + static_cast<std::ptrdiff_t>(5 * bytes), bytes, std::byte{0xff});
  const uint64_t infinity = reduction.dtype == DataType::kFloat64   ? 0x7ff0000000000000
                            : reduction.dtype == DataType::kFloat32 ? 0x7f800000
                            : reduction.dtype == DataType::kFloat16 ? 0x7c00
                                                                    : 0x7f80;
  StoreInteger(TypeOf(reduction.dtype), static_cast<int64_t>(infinity), result.data(), 50);
  EXPECT_EQ(Wrong(reduction, result), 2u);
}

INSTANTIATE_TEST_SUITE_P(All, FloatSums, testing::ValuesIn(AllFloatSums()), [](const auto& param_info) {
  const Reduction& reduction = param_info.param;
  return std::string(TypeOf(reduction.dtype).name) + "_" + WireName(reduction.wire) + "_" +
         std::to_string(reduction.world_size);
});

// Elements so small beside their block that its bound would let them be anything are rare in the inputs.
TEST(ElementBound, IsTheEdgeWhereItIsTheTighterOne) {
  constexpr size_t kMany = 1 << 20;
  const Reduction of_element = Float32(4, Promise::kElement), of_block = Float32(4);
  const Bytes right = RightSums(of_element, kMany);
  int tried = 0;
  for (const Element& element : ElementsOf(of_element, kMany)) {
    const long double edge = std::ldexp(element.magnitude, -12);
    if (edge == 0 || edge > ErrorBound(of_block, element.max, element.magnitude) / 2) continue;
    ++tried;
    const size_t first = element.at / 32 * 32;
    Bytes result = right;
    const auto wrong = [&](const Reduction& reduction) {
      return CountWrong(reduction, kSeed, result.data(), first, 32);
    };
    Store(DataType::kFloat32, element.sum + 0.99L * edge, result, element.at);
    EXPECT_EQ(wrong(of_element), 0u) << element.at;
    Store(DataType::kFloat32, element.sum - 1.01L * edge, result, element.at);
    EXPECT_EQ(wrong(of_element), 1u) << element.at;
    EXPECT_EQ(wrong(of_block), 0u) << element.at;
  }
  EXPECT_GT(tried, 0);
}

TEST(ErrorBound, FollowsTheFormulas) {
  Reduction reduction = Float32(1);
  EXPECT_EQ(ErrorBound(reduction, 1, 1), 0x1p-31L);
  reduction.world_size = 5;
  EXPECT_EQ(ErrorBound(reduction, 1, 1), 5 * 0x1p-28L);
  reduction.world_size = 4;
  EXPECT_EQ(ErrorBound(reduction, 2, 1), 4 * 2 * 0x1p-29L);
  reduction.wire = WireType::kInt16;
  EXPECT_EQ(ErrorBound(reduction, 2, 1), 4 * 2 * 0x1p-13L);
  reduction.wire = WireType::kInt8;
  EXPECT_EQ(ErrorBound(reduction, 2, 1), 4 * 2 * 0x1p-5L);
  reduction.promise = Promise::kElement;  // narrow wires know only the block
  EXPECT_EQ(ErrorBound(reduction, 2, 0x1p-40L), 4 * 2 * 0x1p-5L);
  reduction.wire = WireType::kInt32;
  EXPECT_EQ(ErrorBound(reduction, 2, 0x1p-40L), 0x1p-52L);
  EXPECT_EQ(ErrorBound(reduction, 2, 2), 4 * 2 * 0x1p-29L);
  reduction.dtype = DataType::kFloat64;
  EXPECT_EQ(ErrorBound(reduction, 2, 2), 4 * 2 * 0x1p-61L);
  EXPECT_EQ(ErrorBound(reduction, 2, 0x1p-40L), 0x1p-64L);
}

TEST(BlockElements, AreThoseOfTheBytesOfLanesUnderOneBound) {
  const auto elements = [](DataType dtype, WireType wire, size_t bytes) {
    return BlockElements({dtype, ReduceOp::kSum, Promise::kBlock, wire, 4, bytes});
  };
  for (const size_t bytes : {128, 256}) {
    EXPECT_EQ(elements(DataType::kFloat32, WireType::kInt32, bytes), bytes / 4);
    EXPECT_EQ(elements(DataType::kFloat16, WireType::kInt32, bytes), bytes / 4);
    EXPECT_EQ(elements(DataType::kFloat32, WireType::kInt16, bytes), bytes / 2);
    EXPECT_EQ(elements(DataType::kFloat32, WireType::kInt8, bytes), bytes);
    EXPECT_EQ(elements(DataType::kFloat64, WireType::kInt32, bytes), bytes / 4);
  }
}

TEST(FloatChecker, SumsOfAnotherSeedAreWrongAlmostEverywhere) {
  const Bytes result = RightSums(Float32(4), 1024);
  EXPECT_GT(CountWrong(Float32(4), kSeed + 1, result.data(), 0, 1024), 900u);
}

TEST(FloatChecker, AMissingRankIsFound) { EXPECT_GT(Wrong(Float32(4), RightSums(Float32(3), 1024)), 900u); }

TEST(FloatChecker, LooksAtItsShareOnly) {
  Bytes result = RightSums(Float32(4), 256);
  for (const size_t i : {10, 200}) Store(DataType::kFloat32, 1e6, result, i);
  EXPECT_EQ(CountWrong(Float32(4), kSeed, result.data(), 0, 128), 1u);
  EXPECT_EQ(CountWrong(Float32(4), kSeed, result.data(), 128, 128), 1u);
}

TEST(FloatChecker, PeersMayRoundEveryAdd) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kFloat16, DataType::kFloat64}) {
    const ElementType& type = TypeOf(dtype);
    Reduction reduction{dtype, ReduceOp::kSum, Promise::kAdds, WireType::kInt32, 8};
    Bytes result(kCount * type.bytes);
    for (size_t i = 0; i < kCount; ++i) {
      double sum = 0;
      for (int rank = 0; rank < 8; ++rank) sum = Rounded(dtype, sum + FloatInput(type, kSeed, rank, i));
      StoreFloat(type, sum, result.data(), i);
    }
    EXPECT_EQ(Wrong(reduction, result), 0u) << type.name;
    reduction.promise = Promise::kBlock;
    EXPECT_GT(Wrong(reduction, result), 0u) << type.name;  // which is why the promise of mlnet is another
    reduction.promise = Promise::kAdds;
    for (const size_t i : {77, 78}) {
      const Element element = ElementsOf(reduction, kCount)[i];
      Store(dtype,
            element.sum + 1.1L * ErrorBound(reduction, element.max, element.magnitude) +
                Spacing(dtype, element.sum),
            result, i);
    }
    EXPECT_EQ(Wrong(reduction, result), 2u) << type.name;
  }
}

template <typename T>
T Of(ReduceOp op, T a, T b, T c) {
  if (op == ReduceOp::kMin) return std::min({a, b, c});
  if (op == ReduceOp::kMax) return std::max({a, b, c});
  return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b) + static_cast<uint64_t>(c));
}

class Exact : public testing::TestWithParam<std::string> {};

TEST_P(Exact, MinAndMaxAreAndIntegerSumsWrap) {
  const ElementType& type = *FindType(GetParam());
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
    if (type.IsFloat() && op == ReduceOp::kSum) continue;
    const Reduction reduction{type.dtype, op, Promise::kElement, WireType::kInt32, 3};
    Bytes result(100 * type.bytes);
    for (size_t i = 0; i < 100; ++i) {
      const auto real = [&](int rank) { return FloatInput(type, kSeed, rank, i); };
      const auto whole = [&](int rank) { return IntegerInput(type, kSeed, rank, i); };
      if (type.IsFloat())
        StoreFloat(type, Of(op, real(0), real(1), real(2)), result.data(), i);
      else
        StoreInteger(type, Of(op, whole(0), whole(1), whole(2)), result.data(), i);
    }
    EXPECT_EQ(Wrong(reduction, result), 0u) << OpName(op);
    result[99 * type.bytes] ^= std::byte{1};  // the lowest bit
    EXPECT_EQ(Wrong(reduction, result), 1u) << OpName(op);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Exact, testing::ValuesIn(TypeNames()),
                         [](const auto& param_info) { return param_info.param; });

TEST(CountDifferent, ComparesTheBitsOfWholeElements) {
  const float a[] = {0.0F, 1.0F, NAN}, b[] = {-0.0F, 1.0F, NAN};
  EXPECT_EQ(CountDifferent(a, b, 3, 4), 1u);
  const int8_t c[] = {1, 2, 3, 4}, d[] = {1, 0, 0, 4};
  EXPECT_EQ(CountDifferent(c, d, 4, 1), 2u);
  EXPECT_EQ(CountDifferent(c, d, 1, 4), 1u);
}

// As a hook does it: every input and every partial sum rounded to float16.
TEST(HalfAdds, OfRoundedInputsAreRightInAnyOrderAndNotMuchMoreIs) {
  const auto half = [](double value) { return static_cast<double>(static_cast<_Float16>(value)); };
  for (const int n : {2, 4, 16}) {
    const Reduction reduction = Float32(n, Promise::kHalfAdds);
    const auto elements = ElementsOf(reduction, kCount);
    Bytes result(kCount * sizeof(float));
    for (const bool backwards : {false, true}) {
      for (const Element& element : elements) {
        double sum = 0;
        for (int i = 0; i < n; ++i)
          sum = half(sum + half(FloatInput(TypeOf(DataType::kFloat32), kSeed, backwards ? n - 1 - i : i, element.at)));
        Store(DataType::kFloat32, sum, result, element.at);
      }
      EXPECT_EQ(Wrong(reduction, result), 0u) << n;
    }
    ExpectEdge(reduction, [n](const Element& element) {
      return std::expm1(n * std::log1p(std::ldexp(1.0L, -11))) * 1.001L * element.magnitude + (2 * n - 1) * std::ldexp(1.0L, -25);
    });
  }
}

}  // namespace
}  // namespace mlnet::perf
