// SPDX-License-Identifier: Apache-2.0
// Jobs whose packets carry a tag: every hop checks it and makes it anew, also where packets are lost and come again.
#include "sim/sim_calls.h"

namespace mlnet::sim {
namespace {

constexpr size_t kCount = 40'007;

uint64_t Refused(Cluster& cluster, int hosts) {
  uint64_t sum = 0;
  for (int h = 0; h < hosts; ++h) sum += cluster.HostStats(h).verdicts[MLNET_V_DROP_MAC];
  return sum;
}

TEST(MacSim, racks_under_a_root_without_a_fault_refuse_nothing_and_repeat_nothing) {
  for (bool is_multicast : {true, false}) {
    SCOPED_TRACE(is_multicast ? "multicast" : "unicast");
    Cluster cluster({.ranks = 8, .hosts = 4, .combines = true, .racks = 2, .is_multicast = is_multicast, .has_mac = true});
    CheckFloats(cluster, kCount, 1);
    EXPECT_EQ(cluster.Stats(0).retransmits, 0u);
    EXPECT_EQ(Refused(cluster, 5), 0u);
  }
}

TEST(MacSim, racks_under_a_root_under_every_fault) {
  const uint64_t seed = Seed(51);
  for (bool is_multicast : {true, false}) {
    for (bool workers_sum : {false, true}) {
      SCOPED_TRACE(testing::Message() << (workers_sum ? "workers" : "spare hosts") << ", " << (is_multicast ? "multicast" : "unicast"));
      Cluster cluster({.ranks = 8, .hosts = 4, .trees = workers_sum ? 2 : 1, .workers_sum = workers_sum, .combines = true, .racks = 2,
                       .is_multicast = is_multicast, .has_mac = true, .faults = OnePercentOfAll(), .seed = seed});
      for (int round = 0; round < 2; ++round) CheckFloats(cluster, kCount, seed + static_cast<uint64_t>(round));
      EXPECT_GT(cluster.Stats(0).retransmits, 0u);
      PrintTraffic(cluster);
    }
  }
}

TEST(MacSim, a_tag_changes_no_bit_of_the_result) {
  FloatCall plain(4, kCount, 3), tagged(4, kCount, 3);
  for (FloatCall* call : {&plain, &tagged}) {
    Cluster cluster({.ranks = 4, .has_mac = call == &tagged});
    Works works;
    for (int r = 0; r < 4; ++r) works.push_back(call->Submit(cluster, r));
    ASSERT_TRUE(cluster.RunUntilDone());
    ExpectDone(works);
  }
  EXPECT_EQ(std::memcmp(plain.result().data(), tagged.result().data(), kCount * sizeof(float)), 0);
}

TEST(MacSim, a_server_is_answered_and_answers_with_tags) {
  Cluster cluster({.ranks = 4, .hosts = 2, .combines = true, .has_server = true, .has_mac = true,
                   .faults = OnePercentOfAll(), .seed = Seed(5)});
  std::vector<uint8_t> bytes(30'000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 131 + i / 251);
  std::vector<std::vector<uint8_t>> out(4, std::vector<uint8_t>(bytes.size()));
  Works works = {cluster.Submit(cluster.server(), Checked(worker::PullSpec({cluster.server(), 4}, bytes.data(), nullptr, bytes.size(), {})))};
  for (int r = 0; r < 4; ++r) {
    works.push_back(cluster.Submit(r, Checked(worker::PullSpec({r, 4}, nullptr, out[static_cast<size_t>(r)].data(), bytes.size(), {}))));
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  for (const auto& one : out) EXPECT_EQ(one, bytes);
}

}  // namespace
}  // namespace mlnet::sim
