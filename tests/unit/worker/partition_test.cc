// SPDX-License-Identifier: Apache-2.0
// Stage 1: parts of a call cover it once, and give what the whole call would give, bit for bit.
#include "traffic/partition.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "loopback.h"

namespace mlnet::worker {
namespace {

constexpr size_t kRanks = 3;
constexpr uint32_t kBlocks = 2;
constexpr size_t kUnit = kBlocks * MLNET_BLOCK_BYTES;

CollectiveSpec Sum(size_t count) {
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kAllReduce;
  spec.count = count;
  return spec;
}

std::vector<Part> Cut(const CollectiveSpec& spec, const std::vector<uint32_t>& weights, uint64_t ordinal = 0) {
  return Partition(spec, weights, kBlocks, ordinal);
}

TEST(Partition, parts_follow_the_weights_and_cover_the_call_once) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint32_t> weights(2 + random() % 5);
    for (uint32_t& weight : weights) weight = random() % 4;
    weights[random() % weights.size()] = 5;
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    const size_t count = kUnit * (8 * weights.size() + random() % 500) + random() % kUnit;
    size_t next = 0;
    for (const Part& part : Cut(Sum(count), weights)) {
      EXPECT_EQ(part.spec.element_base, next);
      EXPECT_EQ(next % kUnit, 0u);
      const double share = static_cast<double>(count) * weights[part.tree] / total;
      EXPECT_NEAR(static_cast<double>(part.spec.count), share, 2.0 * kUnit);
      next += part.spec.count;
    }
    EXPECT_EQ(next, count);
  }
}

TEST(Partition, small_calls_go_to_one_tree_in_turn) {
  for (uint64_t ordinal = 0; ordinal < 5; ++ordinal) {
    const auto parts = Cut(Sum(8 * 2 * kUnit - 1), {1, 1}, ordinal);
    ASSERT_EQ(parts.size(), 1u);
    EXPECT_EQ(parts[0].tree, ordinal % 2);
    EXPECT_EQ(parts[0].spec.count, 8 * 2 * kUnit - 1);
  }
  EXPECT_EQ(Cut(Sum(8 * 2 * kUnit), {1, 1}).size(), 2u);
  CollectiveSpec in_rank_order = Sum(100 * kUnit);
  in_rank_order.is_in_rank_order = true;
  EXPECT_EQ(Cut(in_rank_order, {1, 1}).size(), 1u) << "the ranks add it as a whole";
}

// What every rank has after the collective that `spec_of(rank, in, out)` describes.
template <typename SpecOf>
std::vector<std::vector<float>> Results(const std::vector<uint32_t>& weights, const std::vector<std::vector<float>>& in,
                                    size_t out_count, SpecOf spec_of) {
  std::vector<std::vector<float>> input = in, out(kRanks, std::vector<float>(out_count, -1));
  std::vector<CollectiveSpec> specs;
  for (size_t r = 0; r < kRanks; ++r) specs.push_back(spec_of(r, input[r], out[r]));
  Loopback loopback({.blocks = kBlocks, .weights = weights});
  loopback.Run(specs);
  return out;
}

std::vector<std::vector<float>> Inputs(size_t count) {
  std::mt19937 random(7);
  std::vector<std::vector<float>> in(kRanks, std::vector<float>(count));
  for (auto& rank : in) {
    for (float& x : rank) x = std::ldexp(static_cast<float>(random()) - 0x1p31F, -static_cast<int>(random() % 30));
  }
  in[1][count / 2] = INFINITY;
  return in;
}

class PartitionOf : public testing::TestWithParam<WireType> {};

TEST_P(PartitionOf, sums_have_the_same_bits_however_they_are_cut) {
  const size_t count = 60 * kUnit + 17;
  const auto in = Inputs(count);
  const auto sum = [&](size_t, std::vector<float>& from, std::vector<float>& to) {
    CollectiveSpec spec = Sum(count);
    spec.wire = GetParam();
    spec.is_stochastic = GetParam() == WireType::kInt8;
    spec.in = from.data();
    spec.out = to.data();
    return spec;
  };
  const auto whole = Results({1}, in, count, sum);
  EXPECT_EQ(Results({1, 1}, in, count, sum), whole);
  EXPECT_EQ(Results({3, 0, 1, 2}, in, count, sum), whole);
}

TEST_P(PartitionOf, every_rank_keeps_its_own_part_of_a_reduce_scatter) {
  const size_t each = 20 * kUnit + 5;
  const auto in = Inputs(each * kRanks);
  const auto scatter = [&](size_t rank, std::vector<float>& from, std::vector<float>& to) {
    CollectiveSpec spec = Sum(each * kRanks);
    spec.kind = CollectiveKind::kReduceScatter;
    spec.wire = GetParam();
    spec.in = from.data();
    spec.out = to.data();
    spec.keep_first = rank * each;
    spec.keep_count = each;
    return spec;
  };
  EXPECT_EQ(Results({1, 2, 1}, in, each, scatter), Results({1}, in, each, scatter));
}

INSTANTIATE_TEST_SUITE_P(Wires, PartitionOf, testing::Values(WireType::kInt32, WireType::kInt16, WireType::kInt8),
                         [](const auto& wire) { return NameOf(wire.param); });

TEST(Partition, copies_arrive_whole) {
  const size_t count = 20 * kUnit + 3;
  const auto in = Inputs(count);
  const auto bytes = [&](CollectiveKind kind, int root) {
    return [&in, count, kind, root](size_t rank, std::vector<float>& from, std::vector<float>& to) {
      CollectiveSpec spec;
      spec.kind = kind;
      spec.root = root;
      spec.count = count * sizeof(float);
      if (kind == CollectiveKind::kBroadcast && static_cast<int>(rank) == root) to = in[rank];
      spec.in = kind == CollectiveKind::kBroadcast ? to.data() : from.data();
      spec.out = to.data();
      if (kind == CollectiveKind::kGather && static_cast<int>(rank) != root) spec.keep_count = 0;
      return spec;
    };
  };
  const auto broadcast = Results({2, 1}, in, count, bytes(CollectiveKind::kBroadcast, 2));
  for (const auto& out : broadcast) EXPECT_EQ(out, in[2]);
  std::vector<float> together;
  for (const auto& rank : in) together.insert(together.end(), rank.begin(), rank.end());
  const auto gathered = Results({2, 1, 1}, in, count * kRanks, bytes(CollectiveKind::kAllGather, 0));
  for (const auto& out : gathered) EXPECT_EQ(out, together);
  const auto at_root = Results({2, 1, 1}, in, count * kRanks, bytes(CollectiveKind::kGather, 1));
  EXPECT_EQ(at_root[1], together);
  EXPECT_EQ(at_root[0], std::vector<float>(count * kRanks, -1));
}

TEST(Partition, scatter_cuts_the_root_s_input) {
  const size_t each = 20 * kUnit + 3;
  const auto in = Inputs(each * kRanks);
  const auto scatter = [&](size_t rank, std::vector<float>& from, std::vector<float>& to) {
    CollectiveSpec spec;
    spec.kind = CollectiveKind::kScatter;
    spec.root = 1;
    spec.count = each * kRanks * sizeof(float);
    spec.in = from.data();
    spec.out = to.data();
    spec.keep_count = each * sizeof(float);
    spec.keep_first = rank * spec.keep_count;
    return spec;
  };
  const auto out = Results({1, 1, 5}, in, each, scatter);
  for (size_t r = 0; r < kRanks; ++r) {
    EXPECT_TRUE(std::equal(out[r].begin(), out[r].end(), in[1].begin() + static_cast<std::ptrdiff_t>(r * each)));
  }
}

}  // namespace
}  // namespace mlnet::worker
