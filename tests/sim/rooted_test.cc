// SPDX-License-Identifier: Apache-2.0
// Collectives whose result not every rank gets whole: reduce, reduce-scatter, gather, scatter.
#include <numeric>

#include "sim/sim_calls.h"

namespace mlnet::sim {
namespace {

using worker::Caller;
using worker::CollectiveKind;

constexpr int kRanks = 3;
constexpr size_t kCounts[] = {1, 31, 352, 5'000};

std::vector<std::vector<int32_t>> Inputs(size_t count) {
  std::vector<std::vector<int32_t>> in(kRanks, std::vector<int32_t>(count));
  for (size_t r = 0; r < in.size(); ++r) std::iota(in[r].begin(), in[r].end(), static_cast<int32_t>(1000 * r + 7));
  return in;
}

TEST(RootedSim, reduce_gives_the_sum_to_the_root_and_touches_nobody_else) {
  Cluster cluster({.ranks = kRanks, .faults = OnePercentOfAll(), .seed = Seed(1)});
  for (size_t count : kCounts) {
    for (int root = 0; root < kRanks; ++root) {
      auto in = Inputs(count);
      const auto before = in;
      Works works;
      for (int r = 0; r < kRanks; ++r) {
        auto& x = in[static_cast<size_t>(r)];
        works.push_back(cluster.Submit(
            r, Checked(worker::ReductionSpec(CollectiveKind::kReduce, {r, kRanks}, x.data(), r == root ? x.data() : nullptr,
                                     count, DataType::kInt32, ReduceOp::kSum, root, {}))));
      }
      ASSERT_TRUE(cluster.RunUntilDone());
      ExpectDone(works);
      for (size_t r = 0; r < kRanks; ++r) {
        for (size_t i = 0; i < count; ++i) {
          const int32_t sum = before[0][i] + before[1][i] + before[2][i];
          ASSERT_EQ(in[r][i], static_cast<int>(r) == root ? sum : before[r][i]);
        }
      }
    }
  }
}

TEST(RootedSim, reduce_scatter_gives_each_rank_its_part_of_ints_and_of_floats) {
  Cluster cluster({.ranks = kRanks, .faults = OnePercentOfAll(), .seed = Seed(2)});
  for (size_t count : kCounts) {
    for (DataType dtype : {DataType::kInt32, DataType::kFloat32}) {
      auto in = Inputs(count * kRanks);
      std::vector<Floats> floats;
      for (const auto& x : in) floats.emplace_back(x.begin(), x.end());
      std::vector<std::vector<uint32_t>> out(kRanks, std::vector<uint32_t>(count));
      Works works;
      for (int r = 0; r < kRanks; ++r) {
        const auto rank = static_cast<size_t>(r);
        const void* from = dtype == DataType::kInt32 ? static_cast<void*>(in[rank].data()) : floats[rank].data();
        works.push_back(cluster.Submit(
            r, Checked(worker::ReductionSpec(CollectiveKind::kReduceScatter, {r, kRanks}, from, out[rank].data(),
                                     count * kRanks, dtype, ReduceOp::kSum, 0, {}))));
      }
      ASSERT_TRUE(cluster.RunUntilDone());
      ExpectDone(works);
      for (size_t r = 0; r < kRanks; ++r) {
        for (size_t i = 0; i < count; ++i) {
          const size_t at = r * count + i;
          const int32_t sum = in[0][at] + in[1][at] + in[2][at];
          const double got = dtype == DataType::kInt32 ? static_cast<int32_t>(out[r][i]) : std::bit_cast<float>(out[r][i]);
          ASSERT_NEAR(got, sum, dtype == DataType::kInt32 ? 0 : sum * 1e-6) << r << " " << i;
        }
      }
    }
  }
}

TEST(RootedSim, gather_and_scatter_move_each_ranks_bytes_to_and_from_the_root) {
  Cluster cluster({.ranks = kRanks, .faults = OnePercentOfAll(), .seed = Seed(3)});
  for (size_t count : kCounts) {
    auto in = Inputs(count);
    std::vector<int32_t> all(count * kRanks);
    std::vector<std::vector<int32_t>> back(kRanks, std::vector<int32_t>(count));
    Works works;
    for (int r = 0; r < kRanks; ++r) {
      void* out = r == 1 ? all.data() : nullptr;
      works.push_back(cluster.Submit(
          r, Checked(worker::GatherSpec({r, kRanks}, in[static_cast<size_t>(r)].data(), out, count * 4, 1, {}))));
    }
    ASSERT_TRUE(cluster.RunUntilDone());
    ExpectDone(works);
    for (size_t r = 0; r < kRanks; ++r) {
      ASSERT_TRUE(std::equal(in[r].begin(), in[r].end(), all.begin() + static_cast<std::ptrdiff_t>(r * count)));
    }
    for (int r = 0; r < kRanks; ++r) {
      const void* from = r == 1 ? all.data() : nullptr;
      works.push_back(cluster.Submit(
          r, Checked(worker::ScatterSpec({r, kRanks}, from, back[static_cast<size_t>(r)].data(), count * 4, 1, {}))));
    }
    ASSERT_TRUE(cluster.RunUntilDone());
    ExpectDone(works);
    EXPECT_EQ(back, in);
  }
}

}  // namespace
}  // namespace mlnet::sim
