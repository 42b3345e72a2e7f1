// SPDX-License-Identifier: Apache-2.0
// Every type, operation and wire type through the real bytecode, fix-up stream included, over links that
// lose, repeat, reorder and damage: the same bits as without a network (whose values have unit tests).
#include "sim/sim_calls.h"
#include "unit/worker/loopback.h"
#include "unit/worker/values.h"

namespace mlnet::sim {
namespace {

using worker::Bytes;
using worker::Style;

struct Kind {
  DataType dtype;
  ReduceOp op = ReduceOp::kSum;
  WireType wire = WireType::kInt32;
};

const Kind kKinds[] = {
    {DataType::kFloat32},
    {DataType::kFloat64},
    {DataType::kFloat16},
    {DataType::kBFloat16},
    {DataType::kFloat32, ReduceOp::kSum, WireType::kInt16},
    {DataType::kBFloat16, ReduceOp::kSum, WireType::kInt8},
    {DataType::kInt8},
    {DataType::kInt16},
    {DataType::kInt64},
    {DataType::kBool},
    {DataType::kFloat32, ReduceOp::kMax},
    {DataType::kFloat64, ReduceOp::kMin},
    {DataType::kFloat16, ReduceOp::kMax},
    {DataType::kUint8, ReduceOp::kMin},
    {DataType::kInt32, ReduceOp::kBitXor},
    {DataType::kInt64, ReduceOp::kBitAnd},
};

struct Tensors {
  Kind kind;
  size_t count;
  std::vector<Bytes> in, out;

  Tensors(const Kind& what, int ranks, size_t elements, Style style, uint64_t seed) : kind(what), count(elements) {
    std::mt19937_64 random(seed);
    for (int r = 0; r < ranks; ++r) in.push_back(worker::RandomValues(kind.dtype, count, style, random));
    out = in;
  }
  worker::CollectiveSpec SpecOf(size_t rank, std::vector<Bytes>& buffers) {
    auto spec = AllReduceOf(buffers[rank].data(), buffers[rank].data(), count, kind.dtype);
    spec.op = kind.op;
    spec.wire = kind.wire;
    return spec;
  }
  Bytes WithoutNetwork(uint32_t blocks) {
    std::vector<Bytes> buffers = in;
    std::vector<worker::CollectiveSpec> specs;
    for (size_t r = 0; r < in.size(); ++r) specs.push_back(SpecOf(r, buffers));
    worker::Loopback({.blocks = blocks}).Run(specs);
    for (const Bytes& other : buffers) EXPECT_EQ(other, buffers[0]);
    return buffers[0];
  }
};

void CheckEveryKind(Style style, uint32_t blocks, uint64_t seed) {
  Cluster cluster({.ranks = 3, .hosts = 2, .blocks = blocks, .faults = OnePercentOfAll(), .seed = seed});
  std::vector<Tensors> calls;
  for (const Kind& kind : kKinds) {
    ++seed;
    calls.emplace_back(kind, 3, 7'000 + seed % 100, style, seed);
  }
  Works works;
  for (int r = 0; r < 3; ++r) {
    for (Tensors& call : calls) works.push_back(cluster.Submit(r, call.SpecOf(static_cast<size_t>(r), call.out)));
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  for (Tensors& call : calls) {
    const Bytes expected = call.WithoutNetwork(blocks);
    for (const Bytes& out : call.out) {
      EXPECT_EQ(out, expected) << NameOf(call.kind.dtype) << " " << NameOf(call.kind.op) << " as "
                               << NameOf(call.kind.wire);
    }
  }
  PrintTraffic(cluster);
}

TEST(NumbersSim, every_kind_gives_the_same_bits_over_bad_links) {
  uint64_t seed = Seed(2026);
  for (const uint32_t blocks : {MLNET_BLOCKS_MTU1500, MLNET_BLOCKS_MAX}) {
    for (Style style : {Style::kGradients, Style::kWholeRange, Style::kSpecials}) {
      SCOPED_TRACE(blocks);
      CheckEveryKind(style, blocks, seed += 100);
    }
  }
}

// IEEE 754 at exactly their positions; the neighbours keep their sums.
TEST(NumbersSim, a_nan_or_infinity_stays_where_it_is) {
  Cluster cluster({.ranks = 3});
  for (size_t at : {size_t{0}, size_t{352 * 40 + 5}, size_t{352 * 100 - 1}}) {
    FloatCall call(3, 352 * 100, at + 1);
    FloatCall clean = call;
    call.in(0)[at] = INFINITY;
    call.in(2)[at] = at == 0 ? -INFINITY : 1;
    call.in(1)[at + (at == 0 ? 1 : -1)] = NAN;
    Works works;
    for (int r = 0; r < 3; ++r) works.push_back(call.Submit(cluster, r));
    for (int r = 0; r < 3; ++r) works.push_back(clean.Submit(cluster, r));
    ASSERT_TRUE(cluster.RunUntilDone());
    ExpectDone(works);
    clean.Check();
    for (size_t i = 0; i < call.result().size(); ++i) {
      const float got = call.result()[i];
      if (i == at) EXPECT_TRUE(at == 0 ? std::isnan(got) : got == INFINITY) << got;
      else if (i == at + (at == 0 ? 1 : -1)) EXPECT_TRUE(std::isnan(got));
      else ASSERT_NEAR(got, clean.result()[i], std::fabs(clean.result()[i]) * 1e-5 + 1e-6) << i;
    }
  }
  EXPECT_EQ(cluster.Stats(0).nonfinite_packets, cluster.Stats(1).nonfinite_packets);
  EXPECT_GT(cluster.Stats(0).repairs, 0u);
}

// Repairs take their places in the order of the collectives, though those end in any order.
TEST(NumbersSim, many_collectives_with_repairs_are_under_way_at_once) {
  uint64_t seed = Seed(5);
  Cluster cluster({.ranks = 4, .fixup_log2_slots = 1, .faults = {.drop = 0.05, .reorder = 0.05}, .seed = seed});
  std::vector<Tensors> calls;
  for (size_t i = 0; i < 40; ++i) {
    calls.emplace_back(kKinds[i % 6], 4, 1 + i * 61, i % 3 == 0 ? Style::kGradients : Style::kSpecials, ++seed);
  }
  Works works;
  for (int r = 0; r < 4; ++r) {
    for (Tensors& call : calls) works.push_back(cluster.Submit(r, call.SpecOf(static_cast<size_t>(r), call.out)));
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  for (Tensors& call : calls) {
    const Bytes expected = call.WithoutNetwork(MLNET_BLOCKS_MTU1500);
    for (const Bytes& out : call.out) EXPECT_EQ(out, expected);
  }
}

TEST(NumbersSim, the_fix_up_stream_passes_2_to_the_32) {
  Cluster cluster({.ranks = 2, .first_seq = (1ULL << 32) - 5, .fixup_log2_slots = 2});
  Tensors call({DataType::kFloat32}, 2, 40'000, Style::kWholeRange, 11);
  Works works;
  for (int r = 0; r < 2; ++r) works.push_back(cluster.Submit(r, call.SpecOf(static_cast<size_t>(r), call.out)));
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  EXPECT_EQ(call.out[0], call.WithoutNetwork(MLNET_BLOCKS_MTU1500));
  EXPECT_EQ(call.out[1], call.out[0]);
}

TEST(NumbersSim, small_float_sums_are_counted_as_the_ranks_own) {
  Cluster cluster({.ranks = 2, .small_bytes = 16384});
  FloatCall small(2, 2048, 1), large(2, 2049, 2);
  Works works;
  for (int r = 0; r < 2; ++r) works.push_back(small.Submit(cluster, r));
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  const CommStats after_small = cluster.Stats(0);
  EXPECT_EQ(after_small.summed_in_kernel, 0u);
  const size_t blocks = test::IsIpv6Run() ? MLNET_BLOCKS_MTU1500 - 1 : MLNET_BLOCKS_MTU1500;
  const uint64_t packets = 2 * ((8192 + blocks * MLNET_BLOCK_BYTES - 1) / (blocks * MLNET_BLOCK_BYTES));  // of both ranks
  EXPECT_EQ(after_small.summed_in_user_space, packets);
  for (int r = 0; r < 2; ++r) works.push_back(large.Submit(cluster, r));
  ASSERT_TRUE(cluster.RunUntilDone());
  EXPECT_EQ(cluster.Stats(0).summed_in_user_space, packets);
  EXPECT_GT(cluster.Stats(0).summed_in_kernel, 0u);
  small.Check();
  large.Check();
}

}  // namespace
}  // namespace mlnet::sim
