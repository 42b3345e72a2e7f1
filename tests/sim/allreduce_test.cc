// SPDX-License-Identifier: Apache-2.0
// All-reduce end to end: engines against the real bytecode, on a wire that loses nothing.
#include "sim/sim_calls.h"

namespace mlnet::sim {
namespace {

TEST(AllReduceSim, float32_of_any_size_is_within_the_bound_and_equal_on_all_ranks) {
  Cluster cluster({.ranks = 3});
  for (size_t count : {1, 2, 31, 32, 33, 351, 352, 353, 1000, 352 * 32, 352 * 32 + 1, 50'001}) {
    SCOPED_TRACE(count);
    CheckFloats(cluster, count, count);
  }
  EXPECT_EQ(cluster.Stats(0).retransmits, 0u);
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
    Works works;
    for (size_t r = 0; r < 4; ++r) {
      works.push_back(cluster.Submit(static_cast<int>(r),
                                     AllReduceOf(in[r].data(), out[r].data(), count, DataType::kInt32)));
    }
    ASSERT_TRUE(cluster.RunUntilDone());
    ExpectDone(works);
    for (const auto& rank : out) ASSERT_EQ(std::memcmp(rank.data(), expected.data(), count * 4), 0) << count;
  }
}

TEST(AllReduceSim, every_world_size_from_2_to_8_works_with_both_fan_outs) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (bool is_multicast : {true, false}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << (is_multicast ? "multicast" : "unicast"));
      Cluster cluster({.ranks = ranks, .is_multicast = is_multicast});
      CheckFloats(cluster, 12'345, static_cast<uint64_t>(ranks));
    }
  }
}

TEST(AllReduceSim, several_ranks_share_a_host_and_its_inbox) {
  for (bool is_multicast : {true, false}) {
    Cluster cluster({.ranks = 7, .hosts = 3, .is_multicast = is_multicast});
    CheckFloats(cluster, 30'000, 7);
    EXPECT_EQ(cluster.Stats(6).retransmits, 0u);
  }
}

TEST(AllReduceSim, sixty_four_ranks_on_eight_hosts) {
  Cluster cluster({.ranks = 64, .hosts = 8});
  CheckFloats(cluster, 3'000, 64);
}

TEST(AllReduceSim, the_sum_may_replace_the_input) {
  Cluster cluster({.ranks = 4});
  CheckFloats(cluster, 352 * 100 + 17, 5, true);
}

TEST(AllReduceSim, a_large_tensor_passes_the_pool_many_times) {
  Cluster cluster({.ranks = 2, .log2_slots = 4});
  CheckFloats(cluster, 300'000, 9);
  const mlnet_stats stats = cluster.AggregatorStats();
  EXPECT_EQ(stats.verdicts[MLNET_V_DROP_CORRUPT], 0u);
  EXPECT_EQ(stats.verdicts[MLNET_V_BUSY], 0u);
}

TEST(AllReduceSim, many_collectives_are_under_way_at_once) {
  Cluster cluster({.ranks = 3});
  std::vector<FloatCall> calls;
  Works works;
  for (size_t i = 0; i < 60; ++i) calls.emplace_back(3, 1 + i * 97, 100 + i, i % 2 == 0);
  for (int r = 0; r < 3; ++r) {
    for (FloatCall& call : calls) works.push_back(call.Submit(cluster, r));
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  for (const FloatCall& call : calls) call.Check();
}

TEST(AllReduceSim, a_tensor_without_elements_is_a_place_in_the_order) {
  Cluster cluster({.ranks = 2});
  Works works;
  for (int r = 0; r < 2; ++r)
    works.push_back(cluster.Submit(r, AllReduceOf(nullptr, nullptr, 0, DataType::kFloat32)));
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
}

TEST(AllReduceSim, a_lone_rank_copies_and_sends_nothing) {
  Cluster cluster({.ranks = 1});
  const std::vector<float> in{1.5F, -2, 0};
  std::vector<float> out(3);
  const auto work = cluster.Submit(0, AllReduceOf(in.data(), out.data(), 3, DataType::kFloat32));
  EXPECT_TRUE(work->IsDone());
  EXPECT_EQ(in, out);
  EXPECT_EQ(cluster.Stats(0).packets_sent, 0u);
}

// Subnormals, the largest floats and zeros in one tensor; zero blocks give +0.
TEST(AllReduceSim, the_whole_range_of_float32_survives) {
  Cluster cluster({.ranks = 2});
  FloatCall call(2, 32 * 256, 3);
  for (int r = 0; r < 2; ++r) {
    Floats& in = call.in(r);
    for (size_t block = 0; block < 256; ++block) {
      for (size_t i = 0; i < 32; ++i) {
        in[block * 32 + i] = std::ldexp(1.0F + static_cast<float>(i) / 64, static_cast<int>(block) - 149) / 4;
        if (block == 255) in[block * 32 + i] = -0.0F;
      }
    }
  }
  Works works;
  for (int r = 0; r < 2; ++r) works.push_back(call.Submit(cluster, r));
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  call.Check();
  EXPECT_FALSE(std::signbit(call.result()[255 * 32]));
}

// No 32-bit counter anywhere: seq passes 2^32 in every class.
TEST(AllReduceSim, seq_passes_2_to_the_32_in_every_class) {
  ClusterOptions options{.ranks = 3, .hosts = 2, .log2_slots = 4, .classes = {0, 1, 2, 3, 4, 5, 6, 7}};
  options.first_seq = (1ULL << 32) - 37;
  Cluster cluster(options);
  std::vector<FloatCall> calls;
  Works works;
  for (uint8_t c = 0; c < 8; ++c) calls.emplace_back(3, 352 * 90 + c, 40 + c);
  for (int r = 0; r < 3; ++r) {
    for (int c = 0; c < 8; ++c) works.push_back(calls[static_cast<size_t>(c)].Submit(cluster, r, c));
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  for (const FloatCall& call : calls) call.Check();
}

// Classes never wait for each other: each rank issues its classes in another order.
TEST(AllReduceSim, ranks_interleave_the_classes_as_they_like) {
  Cluster cluster({.ranks = 3, .log2_slots = 4, .classes = {0, 3, 7}});
  std::vector<std::vector<FloatCall>> calls(3);
  const std::vector<int> classes{0, 3, 7};
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < 4; ++i) calls[c].emplace_back(3, 352 * 40 + c * 10 + i, c * 10 + i);
  }
  Works works;
  for (int r = 0; r < 3; ++r) {
    for (size_t turn = 0; turn < 3; ++turn) {
      const size_t c = (turn + static_cast<size_t>(r)) % 3;
      cluster.At(turn * 300'000 + static_cast<uint64_t>(r) * 70'000, [&, r, c] {
        for (FloatCall& call : calls[c]) works.push_back(call.Submit(cluster, r, classes[c]));
      });
    }
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  for (const auto& in_class : calls) {
    for (const FloatCall& call : in_class) call.Check();
  }
}

}  // namespace
}  // namespace mlnet::sim
