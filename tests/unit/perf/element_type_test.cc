// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/element_type.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>

#include "mlnet-perf/inputs.h"

namespace mlnet::perf {
namespace {

TEST(ElementType, EveryNameIsFoundAgain) {
  for (const std::string& name : TypeNames()) {
    ASSERT_NE(FindType(name), nullptr) << name;
    EXPECT_EQ(&TypeOf(FindType(name)->dtype), FindType(name)) << name;
  }
  EXPECT_EQ(FindType("complex64"), nullptr);
}

// By the compiler's own type, and back.
TEST(ElementType, EveryFloat16IsReadAndWrittenAsTheCompilerDoes) {
  const ElementType& type = TypeOf(DataType::kFloat16);
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const double expected = static_cast<double>(std::bit_cast<_Float16>(bits));
    const double got = LoadFloat(type, &bits, 0);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << i;
      continue;
    }
    EXPECT_EQ(got, expected) << i;
    if (!std::isfinite(expected)) continue;
    uint16_t written[2] = {7, 7};
    StoreFloat(type, expected, written, 1);
    EXPECT_EQ(written[1], bits);
    EXPECT_EQ(written[0], 7);
  }
}

TEST(ElementType, BFloat16IsTheUpperHalfOfFloat32) {
  const ElementType& type = TypeOf(DataType::kBFloat16);
  uint16_t bits = 0;
  StoreFloat(type, -1.5, &bits, 0);
  EXPECT_EQ(bits, 0xbfc0);
  EXPECT_EQ(LoadFloat(type, &bits, 0), -1.5);
}

TEST(ElementType, IntegersWrapAtTheirWidth) {
  EXPECT_EQ(Wrap(TypeOf(DataType::kInt8), 200), -56);
  EXPECT_EQ(Wrap(TypeOf(DataType::kUint8), 300), 44);
  EXPECT_EQ(Wrap(TypeOf(DataType::kUint8), 200), 200);
  EXPECT_EQ(Wrap(TypeOf(DataType::kInt16), 0x18000), -32768);
  EXPECT_EQ(Wrap(TypeOf(DataType::kInt32), 0xffffffff), -1);
  EXPECT_EQ(Wrap(TypeOf(DataType::kInt64), UINT64_MAX), -1);
}

TEST(Inputs, AreHeldExactlyByEveryType) {
  for (const std::string& name : TypeNames()) {
    const ElementType& type = *FindType(name);
    std::vector<std::byte> values(5000 * type.bytes);
    FillInputs(type, 77, 2, values.data(), 5000);
    for (size_t i = 0; i < 5000; ++i) {
      if (type.IsFloat())
        ASSERT_EQ(LoadFloat(type, values.data(), i), FloatInput(type, 77, 2, i)) << name << " " << i;
      else
        ASSERT_EQ(LoadInteger(type, values.data(), i), IntegerInput(type, 77, 2, i)) << name << " " << i;
    }
  }
}

TEST(Inputs, AreDistinctAndSpanMagnitudes) {
  const ElementType& type = TypeOf(DataType::kFloat32);
  std::set<double> values;
  size_t zeros = 0;
  double smallest = HUGE_VAL, largest = 0;
  for (size_t i = 0; i < 10000; ++i) {
    const double x = FloatInput(type, 77, 1, i);
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
  EXPECT_GT(largest / smallest, 1e6);
  EXPECT_NE(FloatInput(type, 77, 0, 5), FloatInput(type, 77, 1, 5));
}

}  // namespace
}  // namespace mlnet::perf
