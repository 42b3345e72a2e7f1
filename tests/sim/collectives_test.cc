// SPDX-License-Identifier: Apache-2.0
// Broadcast, all-gather and barrier, with and without loss: header-only packets and rule 4.
#include "sim/sim_calls.h"

namespace mlnet::sim {
namespace {

using worker::CollectiveKind;

std::vector<uint8_t> RandomBytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> bytes(count);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

class CollectivesSim : public testing::TestWithParam<double> {
 protected:
  ClusterOptions Options(int ranks, int hosts = 0) const {
    ClusterOptions options{.ranks = ranks, .hosts = hosts, .log2_slots = 4};
    options.faults = {
        .drop = GetParam(), .duplicate = GetParam(), .reorder = GetParam(), .corrupt = GetParam()};
    options.seed = Seed(17);
    return options;
  }
};

TEST_P(CollectivesSim, broadcast_copies_any_number_of_bytes_from_any_root) {
  Cluster cluster(Options(4, 3));
  for (size_t bytes : {1, 127, 128, 1408, 1409, 30'011}) {
    for (int root : {0, 3}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes from " << root);
      const auto expected = RandomBytes(bytes, bytes + static_cast<uint64_t>(root));
      std::vector<std::vector<uint8_t>> buffers(4, std::vector<uint8_t>(bytes, 0xee));
      buffers[static_cast<size_t>(root)] = expected;
      Works works;
      for (size_t r = 0; r < 4; ++r) {
        auto spec = Spec(CollectiveKind::kBroadcast, buffers[r].data(), buffers[r].data(), bytes);
        spec.root = root;
        works.push_back(cluster.Submit(static_cast<int>(r), spec));
      }
      ASSERT_TRUE(cluster.RunUntilDone());
      ExpectDone(works);
      for (const auto& buffer : buffers) EXPECT_EQ(buffer, expected);
    }
  }
}

TEST_P(CollectivesSim, all_gather_puts_every_rank_in_its_place) {
  Cluster cluster(Options(3));
  for (size_t bytes : {1, 4, 1408, 20'003}) {
    SCOPED_TRACE(bytes);
    std::vector<uint8_t> expected;
    std::vector<std::vector<uint8_t>> in, out(3, std::vector<uint8_t>(3 * bytes, 0xee));
    for (uint64_t r = 0; r < 3; ++r) {
      in.push_back(RandomBytes(bytes, bytes * 10 + r));
      expected.insert(expected.end(), in.back().begin(), in.back().end());
    }
    std::copy(in[1].begin(), in[1].end(), out[1].begin() + static_cast<long>(bytes));  // rank 1: in place
    Works works;
    for (size_t r = 0; r < 3; ++r) {
      const void* from = r == 1 ? out[1].data() + bytes : in[r].data();
      works.push_back(
          cluster.Submit(static_cast<int>(r), Spec(CollectiveKind::kAllGather, from, out[r].data(), bytes)));
    }
    ASSERT_TRUE(cluster.RunUntilDone());
    ExpectDone(works);
    for (const auto& buffer : out) EXPECT_EQ(buffer, expected);
  }
}

TEST_P(CollectivesSim, barrier_ends_nowhere_before_the_last_rank_has_called) {
  Cluster cluster(Options(5, 2));
  Works works;
  for (int r = 0; r < 4; ++r)
    works.push_back(cluster.Submit(r, Spec(CollectiveKind::kBarrier, nullptr, nullptr, 0)));
  cluster.RunFor(50'000'000);
  for (const auto& work : works) EXPECT_FALSE(work->IsDone());
  works.push_back(cluster.Submit(4, Spec(CollectiveKind::kBarrier, nullptr, nullptr, 0)));
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
}

INSTANTIATE_TEST_SUITE_P(Loss, CollectivesSim, testing::Values(0.0, 0.02),
                         [](const auto& loss) { return loss.param == 0 ? "clean" : "faulty"; });

}  // namespace
}  // namespace mlnet::sim
