// SPDX-License-Identifier: Apache-2.0
// What must end in a clear error, on every rank, within its deadline.
#include "sim/sim_calls.h"

namespace mlnet::sim {
namespace {

TEST(ErrorsSim, different_collectives_raise_a_mismatch_that_shows_the_call) {
  const std::vector<float> in(2'000, 1.0F);
  std::vector<float> out(2'000);
  for (auto other : {AllReduceOf(in.data(), out.data(), 1'500, DataType::kFloat32),
                     AllReduceOf(in.data(), out.data(), 2'000, DataType::kInt32),
                     Spec(worker::CollectiveKind::kBarrier, nullptr, nullptr, 0)}) {
    Cluster cluster({.ranks = 2});
    Works works;
    works.push_back(cluster.Submit(0, AllReduceOf(in.data(), out.data(), 2'000, DataType::kFloat32)));
    cluster.RunFor(1'000'000);
    works.push_back(cluster.Submit(1, other));
    ASSERT_TRUE(cluster.RunUntilDone());
    ExpectError(works, ErrorCode::kMismatch, "#0");
    ASSERT_EQ(cluster.descriptions().size(), 1u);
    EXPECT_EQ(cluster.AggregatorStats().verdicts[MLNET_V_MISMATCH], 1u);
  }
}

TEST(ErrorsSim, a_dead_rank_is_named_when_the_deadline_passes) {
  Cluster cluster({.ranks = 4, .timeout_ns = 500'000'000});
  cluster.Kill(2);
  FloatCall call(4, 10'000, 3);
  Works works;
  for (int r : {0, 1, 3}) works.push_back(call.Submit(cluster, r));
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectError(works, ErrorCode::kTimeout, "waiting for rank 2");
  EXPECT_LT(cluster.now_ns(), 700'000'000u);
  // Every later call fails at once, with the same reason.
  const auto late = call.Submit(cluster, 0);
  EXPECT_TRUE(late->IsDone());
  ExpectError({late}, ErrorCode::kTimeout, "waiting for rank 2");
}

TEST(ErrorsSim, a_silent_aggregator_is_named_when_the_deadline_passes) {
  Cluster cluster({.ranks = 2, .timeout_ns = 300'000'000, .faults = {.drop = 1.0}});
  FloatCall call(2, 1'000, 3);
  Works works;
  for (int r = 0; r < 2; ++r) works.push_back(call.Submit(cluster, r));
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectError(works, ErrorCode::kTimeout, "192.0.2.3:28012 did not answer");
  EXPECT_LT(cluster.Stats(0).retransmits, 40u);
}

// Hosts 0 and 1 with ranks 0, 2, 4 and 1, 3, 5: those of host 0 learn from the root which host is late.
TEST(ErrorsSim, behind_an_inner_node_all_ranks_that_may_be_missing_are_named) {
  Cluster cluster({.ranks = 6, .hosts = 2, .combines = true, .timeout_ns = 500'000'000});
  cluster.Kill(3);
  FloatCall call(6, 10'000, 3);
  Works works;
  for (int r : {0, 2, 4}) works.push_back(call.Submit(cluster, r));
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectError(works, ErrorCode::kTimeout, "waiting for ranks 1, 3, 5");
}

TEST(ErrorsSim, a_silent_node_above_is_told_apart_from_missing_ranks) {
  for (const auto& [forward_ns, text] : {std::pair(1U, "neither the node at 192.0.2.3:28012 nor the one above it answered"),
                                         std::pair(4'000'000'000U, "are in, but no answer came from the one above it")}) {
    Cluster cluster({.ranks = 4, .hosts = 2, .combines = true, .forward_ns = forward_ns, .timeout_ns = 300'000'000});
    FloatCall call(4, 1'000, 3);
    cluster.network().Cut(2);  // the root
    Works works;
    for (int r : {0, 2}) works.push_back(call.Submit(cluster, r));
    ASSERT_TRUE(cluster.RunUntilDone());
    ExpectError(works, ErrorCode::kTimeout, text);
  }
}

TEST(ErrorsSim, the_wire_coming_back_within_the_deadline_is_enough) {
  Cluster cluster({.ranks = 3, .timeout_ns = 5'000'000'000, .faults = {.drop = 1.0}});
  FloatCall call(3, 40'000, 4);
  Works works;
  for (int r = 0; r < 3; ++r) works.push_back(call.Submit(cluster, r));
  cluster.At(700'000'000, [&] { cluster.network().faults().drop = 0; });
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  call.Check();
  PrintTraffic(cluster);
  EXPECT_LT(cluster.now_ns(), 1'200'000'000u);
}

TEST(ErrorsSim, a_class_that_is_not_open_is_refused_by_name) {
  Cluster cluster({.ranks = 2});
  const auto work = cluster.Submit(0, Spec(worker::CollectiveKind::kBarrier, nullptr, nullptr, 0, 5));
  ExpectError({work}, ErrorCode::kInvalidArgument, "traffic class 5");
}

}  // namespace
}  // namespace mlnet::sim
