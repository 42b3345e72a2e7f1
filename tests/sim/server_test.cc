// SPDX-License-Identifier: Apache-2.0
// A job with a server on the root's host: what ranks push is summed for it on the way, what they pull comes once.
#include <limits>
#include <numeric>

#include "sim/sim_calls.h"

namespace mlnet::sim {
namespace {

constexpr size_t kPacketFloats = 352;

// Hosts of two ranks are inner nodes, the leader of each rack is one more level; the root has ranks of its own or not.
ClusterOptions Deep(bool workers_sum, uint64_t seed) {
  return {.ranks = 8, .hosts = 4, .workers_sum = workers_sum, .combines = true, .has_server = true, .racks = 2,
          .log2_slots = 4, .classes = {0, 1}, .seed = seed};
}

/// One push of every rank to the server, as a call of its own on each.
class PushCall {
 public:
  explicit PushCall(std::vector<Floats> in) : in_(std::move(in)), sum_(in_[0].size(), -1.0F) {}

  Works Submit(Cluster& cluster, const CallOptions& options = {}) {
    Works works;
    for (int r = 0; r < cluster.ranks(); ++r) {
      works.push_back(cluster.Submit(r, Checked(worker::PushSpec({r, cluster.ranks()}, in_[static_cast<size_t>(r)].data(), nullptr,
                                                                 in_[0].size(), DataType::kFloat32, options))));
    }
    works.push_back(cluster.Submit(cluster.server(), Checked(worker::PushSpec({cluster.server(), cluster.ranks()}, nullptr, sum_.data(),
                                                                              sum_.size(), DataType::kFloat32, options))));
    return works;
  }
  const Floats& sum() const { return sum_; }
  const std::vector<Floats>& in() const { return in_; }

 private:
  std::vector<Floats> in_;
  Floats sum_;
};

std::vector<Floats> RandomInputs(int ranks, size_t count, uint64_t seed) {
  std::vector<Floats> in;
  for (int r = 0; r < ranks; ++r) in.push_back(RandomFloats(count, seed * 1000 + static_cast<uint64_t>(r)));
  return in;
}

// What an all-reduce of the same job gives: the tree still reflects what is not for the server.
Floats Reflected(Cluster& cluster, std::vector<Floats> in, CallOptions options = {}) {
  options.traffic_class = 1;
  Works works;
  for (int r = 0; r < cluster.ranks(); ++r) {
    Floats& x = in[static_cast<size_t>(r)];
    works.push_back(cluster.Submit(
        r, Checked(worker::ReductionSpec(worker::CollectiveKind::kAllReduce, {r, cluster.ranks()}, x.data(), x.data(), x.size(),
                                         DataType::kFloat32, ReduceOp::kSum, 0, options))));
  }
  EXPECT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  return in[0];
}

void ExpectSameBits(const Floats& a, const Floats& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i])) << i;
}

void CheckPush(Cluster& cluster, std::vector<Floats> in, const CallOptions& options = {}) {
  PushCall push(std::move(in));
  const Works works = push.Submit(cluster, options);
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  ExpectSameBits(push.sum(), Reflected(cluster, push.in(), options));
}

void CheckPull(Cluster& cluster, const std::vector<uint8_t>& bytes) {
  std::vector<std::vector<uint8_t>> out(static_cast<size_t>(cluster.ranks()), std::vector<uint8_t>(bytes.size(), 0xee));
  Works works;
  works.push_back(cluster.Submit(cluster.server(), Checked(worker::PullSpec({cluster.server(), cluster.ranks()}, bytes.data(),
                                                                            nullptr, bytes.size(), {}))));
  for (int r = 0; r < cluster.ranks(); ++r) {
    works.push_back(cluster.Submit(r, Checked(worker::PullSpec({r, cluster.ranks()}, nullptr, out[static_cast<size_t>(r)].data(),
                                                               bytes.size(), {}))));
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  for (const auto& one : out) ASSERT_EQ(one, bytes);
}

std::vector<uint8_t> SomeBytes(size_t count) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 131 + i / 251);
  return bytes;
}

TEST(ServerSim, the_server_gets_the_bits_that_an_all_reduce_gives) {
  for (const bool workers_sum : {false, true}) {
    ClusterOptions options = Deep(workers_sum, Seed(1));
    options.faults = OnePercentOfAll();
    Cluster cluster(options);
    for (const size_t count : {size_t{1}, size_t{33}, kPacketFloats * 40 + 5}) CheckPush(cluster, RandomInputs(8, count, count));
    PrintTraffic(cluster);
  }
}

TEST(ServerSim, every_rank_pulls_the_servers_bytes) {
  for (const bool workers_sum : {false, true}) {
    for (const bool is_multicast : {false, true}) {
      ClusterOptions options = Deep(workers_sum, Seed(2));
      options.faults = OnePercentOfAll();
      options.is_multicast = is_multicast;
      Cluster cluster(options);
      for (const size_t count : {0, 1, 1408, 70'001}) CheckPull(cluster, SomeBytes(count));
    }
  }
}

TEST(ServerSim, equal_pulls_and_pushes_are_one_packet_for_the_server) {
  Cluster cluster(Deep(false, Seed(3)));
  constexpr size_t kPackets = 30;
  const size_t packet_bytes = (test::IsIpv6Run() ? MLNET_BLOCKS_MTU1500 - 1 : MLNET_BLOCKS_MTU1500) * MLNET_BLOCK_BYTES;
  const auto before = cluster.RootStats(0);
  CheckPull(cluster, SomeBytes(kPackets * packet_bytes));
  const auto pulled = cluster.RootStats(0);
  EXPECT_EQ(pulled.verdicts[MLNET_V_SUM_TO_SERVER] - before.verdicts[MLNET_V_SUM_TO_SERVER], kPackets);
  EXPECT_EQ(pulled.contributions - before.contributions, kPackets * 2) << "one of each rack";
  EXPECT_EQ(pulled.verdicts[MLNET_V_ANSWER_SENT] - before.verdicts[MLNET_V_ANSWER_SENT], kPackets);

  PushCall push(RandomInputs(8, kPackets * packet_bytes / sizeof(float), 3));
  ExpectDone([&] {
    const Works works = push.Submit(cluster, {.keeps_small = false});  // no fix-ups
    EXPECT_TRUE(cluster.RunUntilDone());
    return works;
  }());
  const auto pushed = cluster.RootStats(0);
  const uint64_t probes = 1;
  EXPECT_EQ(pushed.verdicts[MLNET_V_SUM_TO_SERVER] - pulled.verdicts[MLNET_V_SUM_TO_SERVER], kPackets + probes);
  EXPECT_EQ(cluster.Stats(cluster.server()).retransmits, 0u);
}

TEST(ServerSim, wide_far_and_nonfinite_elements_reach_the_server_too) {
  ClusterOptions options = Deep(false, Seed(4));
  options.faults = OnePercentOfAll();
  Cluster cluster(options);
  auto in = RandomInputs(8, kPacketFloats * 3, 4);
  in[2][7] = std::numeric_limits<float>::infinity();
  in[5][400] = std::numeric_limits<float>::quiet_NaN();
  in[1][100] = 1e-7F, in[3][101] = 1e6F;      // wide
  in[1][800] = 1e-38F, in[3][801] = 1e38F;    // beyond both lanes
  CheckPush(cluster, in);
  EXPECT_GT(cluster.Stats(cluster.server()).repairs, 0u);
}

TEST(ServerSim, small_sums_and_narrow_lanes_are_those_of_an_all_reduce) {
  ClusterOptions options = Deep(true, Seed(5));
  options.faults = OnePercentOfAll();
  options.small_bytes = 16384;
  Cluster cluster(options);
  CheckPush(cluster, RandomInputs(8, 100, 5));
  CheckPush(cluster, RandomInputs(8, 5000, 6), {.wire = WireType::kInt16});
}

TEST(ServerSim, integers_are_exact) {
  Cluster cluster({.ranks = 3, .has_server = true, .faults = OnePercentOfAll(), .seed = Seed(6)});
  std::vector<std::vector<int32_t>> in(3, std::vector<int32_t>(5000));
  for (size_t r = 0; r < in.size(); ++r) std::iota(in[r].begin(), in[r].end(), static_cast<int32_t>(1000 * r + 7));
  std::vector<int32_t> sum(5000);
  Works works;
  for (int r = 0; r < 3; ++r) {
    works.push_back(cluster.Submit(r, Checked(worker::PushSpec({r, 3}, in[static_cast<size_t>(r)].data(), nullptr, 5000, DataType::kInt32, {}))));
  }
  works.push_back(cluster.Submit(3, Checked(worker::PushSpec({3, 3}, nullptr, sum.data(), 5000, DataType::kInt32, {}))));
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  for (size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], in[0][i] + in[1][i] + in[2][i]);
}

TEST(ServerSim, a_server_that_calls_late_is_waited_for) {
  Cluster cluster(Deep(false, Seed(7)));
  const auto bytes = SomeBytes(50'000);
  std::vector<std::vector<uint8_t>> out(8, std::vector<uint8_t>(bytes.size()));
  Works works;
  for (int r = 0; r < 8; ++r) {
    works.push_back(cluster.Submit(r, Checked(worker::PullSpec({r, 8}, nullptr, out[static_cast<size_t>(r)].data(), bytes.size(), {}))));
  }
  cluster.RunFor(300'000'000);
  EXPECT_GT(cluster.Stats(0).held, 0u) << "keep-alives, no flood";
  EXPECT_LT(cluster.Stats(0).retransmits, 60u);
  cluster.At(0, [&] { works.push_back(cluster.Submit(8, Checked(worker::PullSpec({8, 8}, bytes.data(), nullptr, bytes.size(), {})))); });
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  for (const auto& one : out) ASSERT_EQ(one, bytes);
}

TEST(ServerSim, a_server_that_never_calls_is_named_by_the_timeout) {
  ClusterOptions options = Deep(false, Seed(8));
  options.timeout_ns = 500'000'000;
  Cluster cluster(options);
  std::vector<uint8_t> out(5000);
  Works works;
  for (int r = 0; r < 8; ++r) works.push_back(cluster.Submit(r, Checked(worker::PullSpec({r, 8}, nullptr, out.data(), out.size(), {}))));
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectError(works, ErrorCode::kTimeout, "the job's server did not answer");
}

TEST(ServerSim, another_call_of_the_server_is_an_error) {
  Cluster cluster(Deep(false, Seed(9)));
  std::vector<uint8_t> out(5000);
  Works works;
  for (int r = 0; r < 8; ++r) works.push_back(cluster.Submit(r, Checked(worker::PullSpec({r, 8}, nullptr, out.data(), out.size(), {}))));
  works.push_back(cluster.Submit(8, Checked(worker::PullSpec({8, 8}, out.data(), nullptr, 4000, {}))));
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectError(works, ErrorCode::kMismatch, "pull #0 bytes=4000");
}

TEST(ServerSim, a_job_without_a_server_refuses_push_and_pull) {
  Cluster cluster({.ranks = 2, .seed = Seed(10)});
  uint8_t byte = 0;
  const Works works = {cluster.Submit(0, Checked(worker::PullSpec({0, 2}, nullptr, &byte, 1, {})))};
  ExpectError(works, ErrorCode::kInvalidArgument, "need a job with a server");
}

TEST(ServerSim, a_class_carries_either_pushes_and_pulls_or_collectives) {
  Cluster cluster({.ranks = 2, .has_server = true, .seed = Seed(11)});
  CheckPull(cluster, SomeBytes(10));
  const Works works = {cluster.Submit(0, Checked(worker::BarrierSpec({})))};
  ExpectError(works, ErrorCode::kInvalidArgument, "class 0 carries pushes and pulls in this job; barrier needs another");
}

}  // namespace
}  // namespace mlnet::sim
