// SPDX-License-Identifier: Apache-2.0
// All-reduce end to end: engines against the real bytecode.
#include <cstring>

#include "sim/cluster.h"
#include "sim/reference.h"

namespace mlnet::sim {
namespace {

worker::CollectiveSpec AllReduceOf(const void* in, void* out, size_t count, DataType dtype, int traffic_class = 0) {
  worker::CollectiveSpec spec;
  spec.kind = worker::CollectiveKind::kAllReduce;
  spec.dtype = dtype;
  spec.in = in;
  spec.out = out;
  spec.count = count;
  spec.traffic_class = traffic_class;
  return spec;
}

void ExpectDone(const std::vector<std::shared_ptr<Work>>& works) {
  for (const auto& work : works) {
    const auto outcome = work->Wait();
    EXPECT_TRUE(outcome.has_value()) << outcome.error().ToString();
  }
}

// Sums `count` floats over all ranks and checks bound and equality of bits.
void CheckFloats(Cluster& cluster, size_t count, uint64_t seed) {
  std::vector<Floats> in, out;
  for (int r = 0; r < cluster.ranks(); ++r) {
    in.push_back(RandomFloats(count, seed * 100 + static_cast<uint64_t>(r)));
    out.emplace_back(count, -1.0F);
  }
  std::vector<std::shared_ptr<Work>> works;
  for (int r = 0; r < cluster.ranks(); ++r) {
    const auto i = static_cast<size_t>(r);
    works.push_back(cluster.Submit(r, AllReduceOf(in[i].data(), out[i].data(), count, DataType::kFloat32)));
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  ExpectSumWithinBound(in, out[0]);
  for (const Floats& other : out) {
    ASSERT_EQ(std::memcmp(other.data(), out[0].data(), count * sizeof(float)), 0) << "ranks differ";
  }
}

TEST(AllReduceSim, float32_of_any_size_is_within_the_bound_and_equal_on_all_ranks) {
  Cluster cluster({.ranks = 3});
  for (size_t count : {1, 2, 31, 32, 33, 351, 352, 353, 1000, 352 * 32, 352 * 32 + 1, 50'001}) {
    SCOPED_TRACE(count);
    CheckFloats(cluster, count, count);
  }
}

TEST(AllReduceSim, int32_is_exact_and_wraps) {
  Cluster cluster({.ranks = 4});
  for (size_t count : {1, 5, 352, 20'001}) {
    std::mt19937_64 random(count);
    std::vector<std::vector<int32_t>> in(4), out(4, std::vector<int32_t>(count));
    std::vector<uint32_t> expected(count);
    for (auto& rank : in) {
      for (size_t i = 0; i < count; ++i) {
        rank.push_back(static_cast<int32_t>(random()));
        expected[i] += static_cast<uint32_t>(rank.back());
      }
    }
    std::vector<std::shared_ptr<Work>> works;
    for (size_t r = 0; r < 4; ++r) {
      works.push_back(cluster.Submit(static_cast<int>(r),
                                     AllReduceOf(in[r].data(), out[r].data(), count, DataType::kInt32)));
    }
    ASSERT_TRUE(cluster.RunUntilDone());
    ExpectDone(works);
    for (const auto& rank : out) {
      ASSERT_EQ(std::memcmp(rank.data(), expected.data(), count * 4), 0) << count;
    }
  }
}

}  // namespace
}  // namespace mlnet::sim
