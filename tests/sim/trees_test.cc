// SPDX-License-Identifier: Apache-2.0
// Several trees per job: shards over spare aggregators, and over the worker hosts themselves, whose own ranks
// reach their root by the host's veth and get results without any wire.
#include "sim/sim_calls.h"

namespace mlnet::sim {
namespace {

constexpr size_t kLarge = 120'007;  // cut over all trees

TEST(TreesSim, shards_over_spare_aggregators_each_sum_their_share) {
  Cluster cluster({.ranks = 4, .trees = 3});
  CheckFloats(cluster, kLarge, 1);
  uint64_t contributions = 0;
  for (int t = 0; t < 3; ++t) {
    const uint64_t of_tree = cluster.RootStats(t).contributions;
    EXPECT_GT(of_tree, 4 * kLarge / 352 / 3 * 9 / 10) << "tree " << t;
    contributions += of_tree;
  }
  EXPECT_EQ(contributions, cluster.Stats(0).summed_in_kernel * 4);
}

TEST(TreesSim, worker_hosts_sum_for_each_other) {
  for (bool is_multicast : {true, false}) {
    for (int ranks : {2, 4, 7}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << (is_multicast ? "multicast" : "unicast"));
      Cluster cluster({.ranks = ranks, .trees = ranks, .workers_sum = true, .is_multicast = is_multicast});
      CheckFloats(cluster, kLarge, static_cast<uint64_t>(ranks));
      EXPECT_EQ(cluster.Stats(0).retransmits, 0u);
      for (int t = 0; t < ranks; ++t) EXPECT_GT(cluster.RootStats(t).results, 0u);
    }
  }
}

TEST(TreesSim, several_ranks_on_each_summing_host) {
  for (bool is_multicast : {true, false}) {
    Cluster cluster({.ranks = 7, .hosts = 3, .trees = 3, .workers_sum = true, .is_multicast = is_multicast});
    CheckFloats(cluster, kLarge, 7);
    EXPECT_EQ(cluster.Stats(0).retransmits, 0u);
  }
}

TEST(TreesSim, all_ranks_on_one_host_need_no_wire) {
  Cluster cluster({.ranks = 8, .hosts = 1, .workers_sum = true});
  CheckFloats(cluster, kLarge, 8);
  const mlnet_stats stats = cluster.RootStats(0);
  EXPECT_EQ(stats.verdicts[MLNET_V_SUM_COMPLETE_LOCAL], stats.results);
  EXPECT_EQ(stats.verdicts[MLNET_V_DELIVERED], 0u) << "results are written where they are made";
}

TEST(TreesSim, the_bits_do_not_depend_on_the_trees) {
  const auto run = [](const ClusterOptions& options) {
    Cluster cluster(options);
    std::vector<std::vector<float>> data(4, std::vector<float>(kLarge));
    std::mt19937_64 random(5);
    for (auto& rank : data) {
      for (float& x : rank) x = std::ldexp(static_cast<float>(random() % 1000), -static_cast<int>(random() % 40));
    }
    Works works;
    for (size_t r = 0; r < 4; ++r) {
      works.push_back(cluster.Submit(static_cast<int>(r),
                                     AllReduceOf(data[r].data(), data[r].data(), kLarge, DataType::kFloat32)));
    }
    EXPECT_TRUE(cluster.RunUntilDone());
    ExpectDone(works);
    for (const auto& rank : data) EXPECT_EQ(rank, data[0]);
    return data[0];
  };
  const auto star = run({.ranks = 4});
  EXPECT_EQ(run({.ranks = 4, .trees = 2}), star);
  EXPECT_EQ(run({.ranks = 4, .trees = 4, .workers_sum = true}), star);
  EXPECT_EQ(run({.ranks = 4, .hosts = 2, .trees = 2, .workers_sum = true, .is_multicast = false}), star);
}

TEST(TreesSim, every_fault_on_every_hop_the_local_one_included) {
  const Faults faults{.drop = 0.01, .duplicate = 0.01, .reorder = 0.01, .corrupt = 0.005, .truncate = 0.002};
  const uint64_t seed = Seed(11);
  for (bool workers_sum : {false, true}) {
    for (bool is_multicast : {true, false}) {
      SCOPED_TRACE(testing::Message() << (workers_sum ? "workers" : "spare hosts") << ", "
                                      << (is_multicast ? "multicast" : "unicast"));
      Cluster cluster({.ranks = 5, .hosts = 3, .trees = 3, .workers_sum = workers_sum, .is_multicast = is_multicast,
                       .faults = faults, .seed = seed});
      for (int round = 0; round < 3; ++round) CheckFloats(cluster, kLarge, seed + static_cast<uint64_t>(round));
      EXPECT_GT(cluster.Stats(0).retransmits, 0u);
    }
  }
}

TEST(TreesSim, seq_passes_32_bits_in_every_tree) {
  Cluster cluster({.ranks = 3, .trees = 3, .workers_sum = true, .first_seq = (1ULL << 32) - 40});
  CheckFloats(cluster, kLarge, 3);
}

TEST(TreesSim, small_calls_take_the_trees_in_turn) {
  Cluster cluster({.ranks = 3, .trees = 3});
  for (int call = 0; call < 6; ++call) CheckFloats(cluster, 1000, static_cast<uint64_t>(call));
  for (int t = 0; t < 3; ++t) EXPECT_EQ(cluster.RootStats(t).results, cluster.RootStats(0).results);
}

TEST(TreesSim, ranks_of_a_host_are_combined_before_its_nic) {
  for (bool is_multicast : {true, false}) {
    for (bool workers_sum : {false, true}) {
      SCOPED_TRACE(testing::Message() << (workers_sum ? "workers" : "spare hosts") << ", "
                                      << (is_multicast ? "multicast" : "unicast"));
      Cluster cluster({.ranks = 12, .hosts = 3, .trees = workers_sum ? 3 : 1, .workers_sum = workers_sum,
                       .combines = true, .is_multicast = is_multicast});
      CheckFloats(cluster, kLarge, 12);
      EXPECT_EQ(cluster.Stats(0).retransmits, 0u);
      if (workers_sum) continue;
      const mlnet_stats root = cluster.RootStats(0);
      EXPECT_EQ(root.contributions, 3 * root.results) << "one packet a host";
    }
  }
}

TEST(TreesSim, combining_keeps_the_bits_and_every_contribution_counts_once_under_all_faults) {
  const uint64_t seed = Seed(21);
  for (bool is_multicast : {true, false}) {
    for (bool workers_sum : {false, true}) {
      SCOPED_TRACE(testing::Message() << (workers_sum ? "workers" : "spare hosts") << ", "
                                      << (is_multicast ? "multicast" : "unicast"));
      Cluster cluster({.ranks = 8, .hosts = 3, .trees = workers_sum ? 3 : 2, .workers_sum = workers_sum,
                       .combines = true, .is_multicast = is_multicast, .faults = OnePercentOfAll(), .seed = seed});
      for (int round = 0; round < 3; ++round) CheckFloats(cluster, kLarge, seed + static_cast<uint64_t>(round));
      EXPECT_GT(cluster.Stats(0).retransmits, 0u);
      PrintTraffic(cluster);
    }
  }
}

TEST(TreesSim, a_rank_without_data_takes_part_in_a_partial_sum) {
  for (const Faults& faults : {Faults{}, OnePercentOfAll()}) {
    Cluster cluster({.ranks = 6, .hosts = 2, .combines = true, .faults = faults, .seed = Seed(31)});
    std::vector<std::vector<uint8_t>> data(6, std::vector<uint8_t>(50'000));
    std::mt19937_64 random(3);
    for (int root : {0, 1, 5}) {
      for (uint8_t& byte : data[static_cast<size_t>(root)]) byte = static_cast<uint8_t>(random());
      const auto expected = data[static_cast<size_t>(root)];
      Works works;
      for (int r = 0; r < 6; ++r) {
        auto& own = data[static_cast<size_t>(r)];
        auto spec = Spec(worker::CollectiveKind::kBroadcast, own.data(), own.data(), own.size());
        spec.root = root;
        works.push_back(cluster.Submit(r, spec));
      }
      for (int r = 0; r < 6; ++r) works.push_back(cluster.Submit(r, Spec(worker::CollectiveKind::kBarrier, nullptr, nullptr, 0)));
      ASSERT_TRUE(cluster.RunUntilDone());
      ExpectDone(works);
      for (const auto& rank : data) ASSERT_EQ(rank, expected) << "root " << root;
    }
  }
}

TEST(TreesSim, three_levels_under_every_fault_at_every_level) {
  const uint64_t seed = Seed(41);
  for (bool is_multicast : {true, false}) {
    for (bool workers_sum : {false, true}) {
      SCOPED_TRACE(testing::Message() << (workers_sum ? "workers" : "spare hosts") << ", "
                                      << (is_multicast ? "multicast" : "unicast"));
      // 3 racks of 3 hosts, some with two ranks: ranks -> host -> rack -> root.
      Cluster cluster({.ranks = 14, .hosts = 9, .trees = workers_sum ? 3 : 1, .workers_sum = workers_sum, .combines = true,
                       .racks = 3, .is_multicast = is_multicast, .faults = OnePercentOfAll(), .seed = seed});
      for (int round = 0; round < 2; ++round) CheckFloats(cluster, kLarge, seed + static_cast<uint64_t>(round));
      EXPECT_GT(cluster.Stats(0).retransmits, 0u);
      PrintTraffic(cluster);
    }
  }
}

TEST(TreesSim, one_contribution_a_rack_reaches_the_root) {
  for (bool is_multicast : {true, false}) {
    Cluster cluster({.ranks = 12, .hosts = 12, .racks = 3, .is_multicast = is_multicast});
    CheckFloats(cluster, kLarge, 3);
    EXPECT_EQ(cluster.Stats(0).retransmits, 0u);
    const mlnet_stats root = cluster.RootStats(0);
    EXPECT_EQ(root.contributions, 3 * root.results);
    const mlnet_stats rack = cluster.HostStats(0);
    EXPECT_EQ(rack.verdicts[MLNET_V_RESULT_DOWN_FAN], is_multicast ? 0 : root.results) << "multicast needs no hop";
  }
}

TEST(TreesSim, a_world_beyond_64_ranks_works_through_depth) {
  Cluster cluster({.ranks = 128, .hosts = 16, .combines = true});
  CheckFloats(cluster, 3'000, 128);
}

}  // namespace
}  // namespace mlnet::sim
