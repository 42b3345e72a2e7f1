// SPDX-License-Identifier: Apache-2.0
// What mlnetd grants a job while others use its links too: how much it has on its way, how it waits, and that
// waiting is no error.
#include "sim/sim_calls.h"

namespace mlnet::sim {
namespace {

using worker::Grant;

constexpr uint64_t kMs = 1'000'000;
constexpr Grant kWaits{.window = 1, .gap_ns = 10 * kMs, .waits = true, .dscp = 1};

void GrantAll(Cluster& cluster, const Grant& grant) {
  for (int r = 0; r < cluster.ranks(); ++r) cluster.engine(r).SetGrant(grant, cluster.now_ns());
}

Works SubmitAll(Cluster& cluster, FloatCall& call) {
  Works works;
  for (int r = 0; r < cluster.ranks(); ++r) works.push_back(call.Submit(cluster, r));
  return works;
}

TEST(GrantsSim, a_window_bounds_what_all_trees_together_have_on_their_way) {
  for (const int trees : {1, 3}) {
    Cluster cluster({.ranks = 3, .trees = trees, .log2_slots = 6});
    GrantAll(cluster, {.window = 6});
    FloatCall call(3, 100'000, 5);
    const Works works = SubmitAll(cluster, call);
    uint64_t most = 0;
    for (uint64_t at = cluster.now_ns(); at < 30 * kMs; at += kMs / 50) {
      cluster.At(at, [&] {
        const CommStats s = cluster.Stats(1);
        most = std::max(most, s.packets_sent - s.results);
      });
    }
    ASSERT_TRUE(cluster.RunUntilDone());
    ExpectDone(works);
    call.Check();
    EXPECT_LE(most, 6u) << trees;
    EXPECT_GE(most, 5u) << trees;
  }
}

TEST(GrantsSim, a_job_that_waits_goes_on_packet_by_packet_and_outlives_its_timeout) {
  Cluster cluster({.ranks = 3, .timeout_ns = 100 * kMs});
  GrantAll(cluster, kWaits);
  FloatCall call(3, 100'000, 6);
  const Works works = SubmitAll(cluster, call);
  cluster.RunFor(1000 * kMs);
  const uint64_t results = cluster.Stats(0).results;
  EXPECT_GE(results, 80u);   // a packet each 10 ms and a round trip
  EXPECT_LE(results, 101u);
  for (const auto& work : works) EXPECT_FALSE(work->IsDone());
  const uint64_t turn_ns = cluster.now_ns();
  GrantAll(cluster, {});
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  call.Check();
  EXPECT_LT(cluster.now_ns() - turn_ns, 50 * kMs);  // 285 packets: nothing of the waiting is left
}

TEST(GrantsSim, bytes_that_are_done_are_counted_in_the_callers_measure) {
  Cluster cluster({.ranks = 2});
  FloatCall call(2, 352 * 100, 7);
  const Works works = SubmitAll(cluster, call);
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  EXPECT_NEAR(static_cast<double>(cluster.Stats(0).bytes), 352 * 100 * 4, 352 * 4);
}

TEST(GrantsSim, a_job_that_waits_still_fails_when_a_rank_is_silent) {
  Cluster cluster({.ranks = 3, .timeout_ns = 100 * kMs});
  GrantAll(cluster, kWaits);
  FloatCall call(3, 100'000, 8);
  const Works works = SubmitAll(cluster, call);
  cluster.RunFor(300 * kMs);
  for (const auto& work : works) EXPECT_FALSE(work->IsDone());
  cluster.Kill(2);
  const uint64_t dead_ns = cluster.now_ns();
  cluster.RunFor(200 * kMs);
  ExpectError({works[0], works[1]}, ErrorCode::kTimeout, "waiting for rank 2");
  EXPECT_LT(cluster.now_ns(), dead_ns + 250 * kMs);
}

TEST(GrantsSim, ranks_that_hear_of_it_at_different_times_agree_in_the_end_under_loss) {
  Cluster cluster({.ranks = 3, .faults = OnePercentOfAll(), .seed = Seed(11)});
  FloatCall call(3, 60'000, 9);
  const Works works = SubmitAll(cluster, call);
  for (int r = 0; r < 3; ++r) {
    const auto later = static_cast<uint64_t>(r) * 3 * kMs;
    cluster.At(cluster.now_ns() + kMs + later, [&cluster, r] { cluster.engine(r).SetGrant(kWaits, cluster.now_ns()); });
    cluster.At(cluster.now_ns() + 100 * kMs + later, [&cluster, r] { cluster.engine(r).SetGrant({}, cluster.now_ns()); });
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  call.Check();
}

}  // namespace
}  // namespace mlnet::sim
