// SPDX-License-Identifier: Apache-2.0
// Against the compiler's own float16, for counts around a vector.
#include "mlnet-perf/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "mlnet-perf/element_type.h"
#include "mlnet-perf/inputs.h"

namespace mlnet::perf {
namespace {

uint16_t Half(double value) { return std::bit_cast<uint16_t>(static_cast<_Float16>(value)); }
double Value(uint16_t half) { return static_cast<double>(std::bit_cast<_Float16>(half)); }

std::vector<float> Inputs(int rank, size_t count) {
  std::vector<float> x(count);
  FillInputs(TypeOf(DataType::kFloat32), 5, rank, x.data(), count);
  if (count > 3) x[3] = std::ldexp(1.5F, -24);  // between the two smallest
  return x;
}

TEST(Half, IsWhatTheCompilerMakesOfIt) {
  for (const size_t count : {1, 7, 15, 16, 17, 1000}) {
    const auto a = Inputs(0, count), b = Inputs(1, count);
    std::vector<uint16_t> x(count), y(count), sum(count);
    std::vector<float> wide(count);
    NarrowToHalf(a.data(), x.data(), count);
    NarrowToHalf(b.data(), y.data(), count);
    AddHalf(sum.data(), x.data(), y.data(), count);
    WidenFromHalf(sum.data(), wide.data(), count);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(x[i], Half(a[i])) << i << " of " << count;
      ASSERT_EQ(Value(sum[i]), Value(Half(Value(x[i]) + Value(y[i])))) << i << " of " << count;
      ASSERT_EQ(wide[i], Value(sum[i])) << i << " of " << count;
    }
  }
}

}  // namespace
}  // namespace mlnet::perf
