// SPDX-License-Identifier: Apache-2.0
// Every (type, operation, wire type, world size) as properties, against plain loops in wider arithmetic.
#include "traffic/traffic.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "unit/worker/loopback.h"
#include "unit/worker/values.h"

namespace mlnet::worker {
namespace {

constexpr DataType kFloats[] = {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBFloat16};
constexpr DataType kIntegers[] = {DataType::kInt8, DataType::kUint8, DataType::kInt16, DataType::kInt32,
                                  DataType::kInt64, DataType::kBool};

struct Case {
  int n = 2;
  size_t count = 1;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  WireType wire = WireType::kInt32;
  bool is_stochastic = false;
  std::vector<Bytes> in;

  std::string Name() const {
    return std::string(NameOf(dtype)) + " " + NameOf(op) + " as " + NameOf(wire) + ", " + std::to_string(n) +
           " ranks, " + std::to_string(count) + " elements";
  }
};

std::vector<Bytes> Outputs(const Case& c, const LoopbackShape& shape, bool is_in_place = false) {
  std::vector<Bytes> out(static_cast<size_t>(c.n), Bytes(c.count * SizeOf(c.dtype), std::byte{0x5a}));
  if (is_in_place) out = c.in;
  std::vector<CollectiveSpec> specs;
  for (size_t r = 0; r < out.size(); ++r) {
    CollectiveSpec spec;
    spec.kind = CollectiveKind::kAllReduce;
    spec.dtype = c.dtype;
    spec.op = c.op;
    spec.wire = c.wire;
    spec.is_stochastic = c.is_stochastic;
    spec.in = is_in_place ? out[r].data() : c.in[r].data();
    spec.out = out[r].data();
    spec.count = c.count;
    specs.push_back(spec);
  }
  Loopback(shape).Run(specs);
  return out;
}

LoopbackShape ShapeOf(uint32_t blocks) { return {blocks, 1U << *rc::gen::inRange(1, 5), 0, {1}, *rc::gen::arbitrary<uint32_t>()}; }

// Exponents are those of one block each up to MLNET_PAIRS_MAX, and of two in larger packets.
LoopbackShape AnyShape(bool has_large_packets) {
  return ShapeOf(has_large_packets ? 2 * *rc::gen::inRange<uint32_t>(MLNET_PAIRS_MAX / 2 + 1, MLNET_BLOCKS_MAX / 2 + 1)
                                   : *rc::gen::inRange<uint32_t>(2, MLNET_PAIRS_MAX + 1));
}

LoopbackShape AnyShape() { return AnyShape(*rc::gen::arbitrary<bool>()); }

Case AnyCase(DataType dtype, ReduceOp op, WireType wire, Style style) {
  Case c;
  c.n = *rc::gen::inRange(2, wire == WireType::kInt8 ? 17 : 65);
  c.count = *rc::gen::inRange<size_t>(1, 4000 / static_cast<size_t>(c.n) + 40);
  c.dtype = dtype;
  c.op = op;
  c.wire = wire;
  std::mt19937_64 random(*rc::gen::arbitrary<uint32_t>());
  for (int r = 0; r < c.n; ++r) c.in.push_back(RandomValues(dtype, c.count, style, random));
  return c;
}

void ExpectEqualOnAllRanks(const std::vector<Bytes>& out, const Case& c) {
  for (const Bytes& other : out) RC_ASSERT(other == out[0]);
  RC_LOG() << c.Name() << "\n";
}

bool IsSame(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// 2^-12 of the magnitudes: what the smallest element of a block keeps before it is called wide.
Quad Bound(const Case& c, const ElementSums& sums) {
  const int lane_bits = c.dtype == DataType::kFloat64 ? 64
                        : c.wire == WireType::kInt8   ? 8
                        : c.wire == WireType::kInt16  ? 16
                                                      : 32;
  const int ceil_log2 = std::bit_width(static_cast<unsigned>(c.n) - 1);
  const Quad block = c.n * Quad{sums.block_most} * Quad{std::ldexp(1.0, ceil_log2 + 1 - lane_bits)};
  if (c.wire != WireType::kInt32) return c.is_stochastic ? 2 * block : block;
  return std::min(block, sums.magnitudes * Quad{std::ldexp(1.0, lane_bits == 64 ? -24 : -12)});
}

// `blocks`: of a packet.
void ExpectFloatSums(const Case& c, const Bytes& out, uint32_t blocks) {
  const size_t of_block = c.dtype == DataType::kFloat64 ? 32
                          : c.wire == WireType::kInt8   ? 128
                          : c.wire == WireType::kInt16  ? 64
                                                        : 32;
  const size_t block = of_block * MLNET_BLOCKS_PER_PAIR(blocks);
  for (size_t i = 0; i < c.count; ++i) {
    const ElementSums sums = SumsOf(c.dtype, c.in, i, block);
    const double got = DoubleAt(c.dtype, out, i);
    if (sums.is_special) {
      RC_ASSERT(IsSame(got, sums.special));
      continue;
    }
    const Quad bound = Bound(c, sums);
    if (Magnitude(sums.exact) + bound >= Quad{LargestOf(c.dtype)}) continue;  // the type itself overflows
    RC_ASSERT(std::isfinite(got));
    RC_ASSERT(Magnitude(Quad{got} - sums.exact) <= bound + RoundingOf(c.dtype, Magnitude(sums.exact) + bound));
  }
}

void CheckFloatSums(WireType wire, DataType dtype, bool is_stochastic = false) {
  const Style style = *rc::gen::element(Style::kGradients, Style::kWholeRange, Style::kSpecials);
  Case c = AnyCase(dtype, ReduceOp::kSum, wire, style);
  c.is_stochastic = is_stochastic;
  const LoopbackShape shape = AnyShape();
  const auto out = Outputs(c, shape);
  ExpectEqualOnAllRanks(out, c);
  ExpectFloatSums(c, out[0], shape.blocks);
}

RC_GTEST_PROP(Traffic, float_sums_keep_every_element_within_the_bound, ()) {
  CheckFloatSums(WireType::kInt32, *rc::gen::elementOf(std::vector<DataType>(std::begin(kFloats), std::end(kFloats))));
}

RC_GTEST_PROP(Traffic, int16_and_int8_keep_their_bounds_and_specials, ()) {
  const auto wire = *rc::gen::element(WireType::kInt16, WireType::kInt8);
  CheckFloatSums(wire, *rc::gen::element(DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16),
                 *rc::gen::arbitrary<bool>());
}

// MTU, pool size and the order of the answers shape the packets, never the result; but for whether packets are of the large kind.
RC_GTEST_PROP(Traffic, the_result_depends_on_the_data_alone, ()) {
  const auto dtype = *rc::gen::elementOf(std::vector<DataType>(std::begin(kFloats), std::end(kFloats)));
  const Style style = *rc::gen::element(Style::kGradients, Style::kWholeRange, Style::kSpecials);
  const auto wire = dtype == DataType::kFloat64 ? WireType::kInt32
                                                : *rc::gen::element(WireType::kInt32, WireType::kInt16, WireType::kInt8);
  const Case c = AnyCase(dtype, ReduceOp::kSum, wire, style);
  const bool has_large_packets = *rc::gen::arbitrary<bool>();
  const auto once = Outputs(c, AnyShape(has_large_packets)), again = Outputs(c, AnyShape(has_large_packets), /*is_in_place=*/true);
  RC_ASSERT(once == again);
}

RC_GTEST_PROP(Traffic, integers_are_exact_and_wrap, ()) {
  const auto dtype = *rc::gen::elementOf(std::vector<DataType>(std::begin(kIntegers), std::end(kIntegers)));
  const auto op = *rc::gen::element(ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kBitAnd,
                                    ReduceOp::kBitOr, ReduceOp::kBitXor);
  const Case c = AnyCase(dtype, op, WireType::kInt32, Style::kGradients);
  const auto out = Outputs(c, AnyShape(), *rc::gen::arbitrary<bool>());
  ExpectEqualOnAllRanks(out, c);
  for (size_t i = 0; i < c.count; ++i) RC_ASSERT(IntegerAt(dtype, out[0], i) == ReducedInteger(dtype, op, c.in, i));
}

RC_GTEST_PROP(Traffic, minimum_and_maximum_of_floats_are_exact_and_nan_wins, ()) {
  const auto dtype = *rc::gen::elementOf(std::vector<DataType>(std::begin(kFloats), std::end(kFloats)));
  const auto op = *rc::gen::element(ReduceOp::kMin, ReduceOp::kMax);
  const Case c = AnyCase(dtype, op, WireType::kInt32, *rc::gen::element(Style::kWholeRange, Style::kSpecials));
  const auto out = Outputs(c, AnyShape());
  ExpectEqualOnAllRanks(out, c);
  for (size_t i = 0; i < c.count; ++i) {
    double expected = DoubleAt(dtype, c.in[0], i);
    for (const Bytes& in : c.in) {
      const double x = DoubleAt(dtype, in, i);
      if (std::isnan(x)) expected = x;
      else if (!std::isnan(expected)) expected = op == ReduceOp::kMin ? std::min(expected, x) : std::max(expected, x);
    }
    const double got = DoubleAt(dtype, out[0], i);
    RC_ASSERT(IsSame(got, expected));
  }
}

RC_GTEST_PROP(Traffic, small_float_tensors_are_float_adds_in_rank_order, ()) {
  Case c = AnyCase(DataType::kFloat32, ReduceOp::kSum, WireType::kInt32, Style::kSpecials);
  c.count = std::min<size_t>(c.count, 16384 / 4 / static_cast<size_t>(c.n));
  for (Bytes& in : c.in) in.resize(c.count * 4);
  LoopbackShape shape = AnyShape();
  shape.small_bytes = 16384;
  const auto out = Outputs(c, shape, *rc::gen::arbitrary<bool>());
  ExpectEqualOnAllRanks(out, c);
  for (size_t i = 0; i < c.count; ++i) {
    auto sum = static_cast<float>(DoubleAt(c.dtype, c.in[0], i));
    for (size_t r = 1; r < c.in.size(); ++r) sum += static_cast<float>(DoubleAt(c.dtype, c.in[r], i));
    const auto got = static_cast<float>(DoubleAt(c.dtype, out[0], i));
    RC_ASSERT(IsSame(got, sum));
    RC_ASSERT(std::isnan(sum) || std::signbit(got) == std::signbit(sum));
  }
}

RC_GTEST_PROP(Traffic, a_residual_is_the_input_less_what_was_sent, ()) {
  const auto wire = *rc::gen::element(WireType::kInt32, WireType::kInt16, WireType::kInt8);
  const Case c = AnyCase(DataType::kFloat32, ReduceOp::kSum, wire, Style::kGradients);
  std::vector<Bytes> out(c.in.size(), Bytes(c.count * 4));
  std::vector<std::vector<float>> residuals(c.in.size(), std::vector<float>(c.count, 9));
  std::vector<CollectiveSpec> specs(c.in.size());
  for (size_t r = 0; r < specs.size(); ++r) {
    specs[r].kind = CollectiveKind::kAllReduce;
    specs[r].wire = wire;
    specs[r].is_stochastic = true;
    specs[r].in = c.in[r].data();
    specs[r].out = out[r].data();
    specs[r].count = c.count;
    specs[r].residual = residuals[r].data();
  }
  Loopback(AnyShape()).Run(specs);
  for (size_t i = 0; i < c.count; ++i) {
    // What all ranks sent is the result, so inputs less result is the sum of the residuals.
    const ElementSums sums = SumsOf(c.dtype, c.in, i, 1);
    Quad left = sums.exact - Quad{DoubleAt(c.dtype, out[0], i)};
    for (const auto& residual : residuals) left -= Quad{residual[i]};
    RC_ASSERT(Magnitude(left) <= (sums.magnitudes + Magnitude(sums.exact)) * Quad{0x1p-20});
  }
}

// 4, 2 and 1 bytes an element plus at most 8 %: headers of the frame, trailer and probes included.
TEST(Traffic, wire_bytes_per_element_stay_within_8_percent_of_the_lanes) {
  for (WireType wire : {WireType::kInt32, WireType::kInt16, WireType::kInt8}) {
    Case c;
    c.count = 4'000'000;
    c.wire = wire;
    std::mt19937_64 random(1);
    for (int r = 0; r < 2; ++r) c.in.push_back(RandomValues(c.dtype, c.count, Style::kGradients, random));
    std::vector<Bytes> out(2, Bytes(c.count * 4));
    std::vector<CollectiveSpec> specs(2);
    for (size_t r = 0; r < 2; ++r) {
      specs[r].kind = CollectiveKind::kAllReduce;
      specs[r].wire = wire;
      specs[r].in = c.in[r].data();
      specs[r].out = out[r].data();
      specs[r].count = c.count;
    }
    Loopback loopback({.slots = 256});
    const uint64_t packets = loopback.Run(specs);
    constexpr size_t kFrameOverhead = 14 + 20 + 8 + sizeof(mlnet_hdr) + sizeof(mlnet_trailer);
    const double bytes = static_cast<double>(loopback.payload_bytes() + packets * kFrameOverhead) / 4e6;
    const double lane = wire == WireType::kInt32 ? 4 : wire == WireType::kInt16 ? 2 : 1;
    EXPECT_LE(bytes, lane * 1.08) << NameOf(wire);
    EXPECT_GE(bytes, lane) << NameOf(wire);
    std::printf("  %s: %.4f bytes an element\n", NameOf(wire), bytes);
  }
}

TEST(Traffic, what_the_lanes_cannot_hold_is_counted) {
  Case c;
  c.count = 32 * 5;
  std::vector<float> x(c.count, 1.0F);
  x[5] = 0x1p-18F;    // block 0: with R = 2^30 of two ranks it keeps 12 bits
  x[40] = 0x1p-19F;   // block 1: 11, so 15 more bits in lanes of 16
  x[100] = 0x1p-33F;  // block 3: the last to fit those
  x[140] = 0x1p-34F;  // block 4: lanes of 32
  x[70] = 0x1p-100F;  // block 2: beyond both
  x[71] = INFINITY;
  c.in.assign(2, Bytes(c.count * 4));
  for (Bytes& in : c.in) std::memcpy(in.data(), x.data(), in.size());
  std::vector<Bytes> out = c.in;
  std::vector<CollectiveSpec> specs(2);
  for (size_t r = 0; r < 2; ++r) {
    specs[r].kind = CollectiveKind::kAllReduce;
    specs[r].in = specs[r].out = out[r].data();
    specs[r].count = c.count;
  }
  Loopback loopback({});
  // A probe, a data packet; marks, low lanes of 16 bits and of 32, and the far block of each rank.
  EXPECT_EQ(loopback.Run(specs), 2u + 1 + 1 + 1 + 2);
  EXPECT_EQ(loopback.payload_bytes(), 128u * (1 + 5 + 1 + 1 + 1 + 2)) << "two blocks share the low lanes of 16 bits";
  EXPECT_EQ(loopback.counters(0).wide_blocks.Read(), 4u);
  EXPECT_EQ(loopback.counters(0).nonfinite_packets.Read(), 1u);
  ExpectFloatSums(c, out[0], LoopbackShape{}.blocks);
  EXPECT_EQ(DoubleAt(c.dtype, out[0], 70), 0x1p-99);

  out = c.in;
  for (size_t r = 0; r < 2; ++r) {
    specs[r].in = specs[r].out = out[r].data();
    specs[r].keeps_small = false;
  }
  EXPECT_EQ(loopback.Run(specs), 2u + 1) << "only the marks";
  EXPECT_EQ(loopback.counters(0).wide_blocks.Read(), 0u);
  EXPECT_EQ(DoubleAt(c.dtype, out[0], 70), 0.0);
  EXPECT_EQ(DoubleAt(c.dtype, out[0], 71), INFINITY);
}

}  // namespace
}  // namespace mlnet::worker
