// SPDX-License-Identifier: Apache-2.0
// The same collectives on a bad wire, and ranks that come late: the result depends on the data alone.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "sim/sim_calls.h"

namespace mlnet::sim {
namespace {

TEST(FaultsSim, one_percent_of_every_fault_changes_nothing_in_the_result) {
  const uint64_t seed = Seed(20260101);
  for (bool is_multicast : {true, false}) {
    for (int ranks : {2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, multicast " << is_multicast << ", seed " << seed);
      ClusterOptions options{.ranks = ranks, .hosts = ranks > 4 ? 4 : 0, .is_multicast = is_multicast};
      FloatCall clean(ranks, 60'000, seed), faulty(ranks, 60'000, seed);
      for (FloatCall* call : {&clean, &faulty}) {
        options.faults = call == &faulty ? OnePercentOfAll() : Faults{};
        options.seed = seed + static_cast<uint64_t>(ranks);
        Cluster cluster(options);
        Works works;
        for (int r = 0; r < ranks; ++r) works.push_back(call->Submit(cluster, r));
        ASSERT_TRUE(cluster.RunUntilDone());
        ExpectDone(works);
        call->Check();
        PrintTraffic(cluster);
      }
      EXPECT_EQ(std::memcmp(clean.result().data(), faulty.result().data(), 60'000 * 4), 0)
          << "loss and order changed bits";
    }
  }
}

TEST(FaultsSim, a_third_of_all_frames_lost_still_ends_right) {
  const uint64_t seed = Seed(7);
  Cluster cluster({.ranks = 3,
                   .log2_slots = 4,
                   .timeout_ns = 60'000'000'000,
                   .faults = {.drop = 0.33, .duplicate = 0.1, .reorder = 0.2},
                   .seed = seed});
  CheckFloats(cluster, 20'000, seed, true);
  PrintTraffic(cluster);
}

// Loss costs little more than the lost packets: on links of 1 Gb/s, with the pool well above what is
// under way on them. The median: a loss at the very end costs a timeout, which seeds decide.
TEST(FaultsSim, one_percent_loss_costs_few_retransmissions_and_little_time) {
  std::vector<double> slowdowns;
  for (uint64_t seed = Seed(100), end = seed + 5; seed < end; ++seed) {
    uint64_t time_ns[2] = {};
    for (int lossy = 0; lossy < 2; ++lossy) {
      Cluster cluster(
          {.ranks = 4, .log2_slots = 8, .faults = {.drop = lossy * 0.01, .ns_per_byte = 8}, .seed = seed});
      const uint64_t start_ns = cluster.now_ns();
      CheckFloats(cluster, 352 * 6000, seed);
      PrintTraffic(cluster);
      time_ns[lossy] = cluster.now_ns() - start_ns;
      // Each rank repeats what any of four ranks lost on the way up, and what it lost on the way down.
      EXPECT_LT(cluster.Stats(0).retransmits, cluster.Stats(0).packets_sent * (lossy ? 8 : 0) / 100 + 1);
    }
    slowdowns.push_back(static_cast<double>(time_ns[1]) / static_cast<double>(time_ns[0]));
  }
  std::sort(slowdowns.begin(), slowdowns.end());
  std::printf("time under loss to time without, by seed: %s\n", testing::PrintToString(slowdowns).c_str());
  EXPECT_LT(slowdowns[2], 1.15);
}

TEST(FaultsSim, all_collectives_and_classes_under_loss_in_different_orders_across_2_to_the_32) {
  const uint64_t seed = Seed(31337);
  ClusterOptions options{
      .ranks = 4, .hosts = 3, .is_multicast = false, .log2_slots = 4, .classes = {0, 2, 5}};
  options.first_seq = (1ULL << 32) - 100;
  options.timeout_ns = 30'000'000'000;
  options.faults = OnePercentOfAll();
  options.seed = seed;
  Cluster cluster(options);
  const std::vector<int> classes{0, 2, 5};
  std::vector<std::vector<FloatCall>> calls(3);
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < 5; ++i)
      calls[c].emplace_back(4, 1 + 352 * 11 * i + c, seed + c * 10 + i, i % 2 == 1);
  }
  Works works;
  for (int r = 0; r < 4; ++r) {
    for (size_t turn = 0; turn < 3; ++turn) {
      const size_t c = (turn + static_cast<size_t>(r)) % 3;
      cluster.At(turn * 500'000 + static_cast<uint64_t>(r) * 333'000, [&, r, c] {
        for (FloatCall& call : calls[c]) {
          works.push_back(call.Submit(cluster, r, classes[c]));
          works.push_back(
              cluster.Submit(r, Spec(worker::CollectiveKind::kBarrier, nullptr, nullptr, 0, classes[c])));
        }
      });
    }
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  for (const auto& in_class : calls) {
    for (const FloatCall& call : in_class) call.Check();
  }
  PrintTraffic(cluster);
}

// A rank that computes longer holds the others up, and they ask rarely.
TEST(FaultsSim, a_late_rank_is_waited_for_with_few_keep_alives) {
  Cluster cluster({.ranks = 4});
  FloatCall call(4, 30'000, 11);
  Works works;
  for (int r = 0; r < 4; ++r) {
    cluster.At(r == 2 ? 2'000'000'000 : 0, [&, r] { works.push_back(call.Submit(cluster, r)); });
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  call.Check();
  PrintTraffic(cluster);
  EXPECT_LT(cluster.Stats(0).retransmits, 30u);
  EXPECT_GT(cluster.Stats(0).held, 0u);
}

TEST(FaultsSim, random_schedules_end_right) {
  const uint64_t seed = Seed(424242);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 12; ++round) {
    const uint64_t round_seed = random();
    SCOPED_TRACE(testing::Message() << "round " << round << ", seed " << round_seed);
    std::mt19937_64 choose(round_seed);
    ClusterOptions options;
    options.ranks = 2 + static_cast<int>(choose() % 5);
    options.hosts = 1 + static_cast<int>(choose() % static_cast<uint64_t>(options.ranks));
    options.is_multicast = choose() % 2 == 0;
    options.log2_slots = static_cast<uint8_t>(1 + choose() % 5);
    options.window_first = static_cast<uint32_t>(1 + choose() % 64);
    options.first_seq = choose() % 3 == 0 ? (1ULL << 32) - choose() % 50 - 64 : 0;
    options.timeout_ns = 60'000'000'000;
    options.seed = choose();
    const double level = static_cast<double>(choose() % 10) / 100;
    options.faults = {
        .drop = level, .duplicate = level, .reorder = level, .corrupt = level / 2, .truncate = level / 4};
    Cluster cluster(options);
    std::vector<FloatCall> calls;
    for (size_t i = 0; i < 6; ++i)
      calls.emplace_back(options.ranks, 1 + choose() % 6000, choose(), choose() % 2);
    Works works;
    for (int r = 0; r < options.ranks; ++r) {
      cluster.At(choose() % 3'000'000, [&, r] {
        for (FloatCall& call : calls) works.push_back(call.Submit(cluster, r));
      });
    }
    ASSERT_TRUE(cluster.RunUntilDone());
    ExpectDone(works);
    for (const FloatCall& call : calls) call.Check();
  }
}

}  // namespace
}  // namespace mlnet::sim
