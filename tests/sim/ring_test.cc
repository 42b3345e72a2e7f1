// SPDX-License-Identifier: Apache-2.0
// The ring takes over from lost aggregators in the middle of collectives: every rank returns what it would have returned.
#include <gtest/gtest.h>

#include <random>

#include "sim/sim_calls.h"

namespace mlnet::sim {
namespace {

constexpr uint64_t kUs = 1'000;

using OutBuffers = std::vector<std::vector<std::byte>>;  // by rank

/// The same calls on all ranks of a cluster, of every kind of sum, in several classes and sizes.
class Calls {
 public:
  Calls(int ranks, uint64_t seed, int num_calls) : ranks_(ranks) {
    std::mt19937_64 random(seed);
    for (int c = 0; c < num_calls; ++c) {
      Call call;
      call.dtype = kTypes[random() % std::size(kTypes)];
      call.op = random() % 4 == 0 ? ReduceOp::kMax : ReduceOp::kSum;
      call.wire = call.dtype == DataType::kFloat32 && call.op == ReduceOp::kSum && random() % 3 == 0 ? WireType::kInt16 : WireType::kInt32;
      call.traffic_class = static_cast<int>(random() % 2);
      call.count = random() % 3 == 0 ? 20'000 + random() % 20'000 : 1 + random() % 800;
      for (int r = 0; r < ranks; ++r) call.in.push_back(Values(call.dtype, call.count, random));
      call.is_in_place = random() % 2 == 0;
      calls_.push_back(std::move(call));
    }
  }

  /// Runs them all; `lost_at_ns` != 0: the aggregators are lost then.
  std::vector<OutBuffers> Run(const ClusterOptions& options, uint64_t lost_at_ns, uint64_t spread_ns) {
    Cluster cluster(options);
    std::vector<OutBuffers> out;
    for (const Call& call : calls_) {
      out.push_back(call.in);
      if (call.is_in_place) continue;
      for (auto& buffer : out.back()) std::fill(buffer.begin(), buffer.end(), std::byte{0x5a});
    }
    std::vector<std::vector<std::shared_ptr<Work>>> works(calls_.size());
    for (int r = 0; r < ranks_; ++r) {
      for (size_t c = 0; c < calls_.size(); ++c) {
        cluster.At(c * 30 * kUs + static_cast<uint64_t>(r) * 7 * kUs,
                   [&, r, c] { works[c].push_back(Submit(cluster, c, r, out[c])); });
      }
    }
    if (lost_at_ns != 0) cluster.At(lost_at_ns, [&] { cluster.LoseAggregators(spread_ns); });
    EXPECT_TRUE(cluster.RunUntilDone());
    for (const auto& of_call : works) ExpectDone(of_call);
    summed_in_ring = cluster.Stats(0).summed_in_ring;
    summed_in_kernel = cluster.Stats(0).summed_in_kernel;
    return out;
  }

  uint64_t summed_in_ring = 0, summed_in_kernel = 0;  // by rank 0 in the last run

 private:
  static constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kInt32, DataType::kFloat64, DataType::kInt64, DataType::kBFloat16};
  struct Call {
    DataType dtype;
    ReduceOp op;
    WireType wire;
    int traffic_class;
    size_t count;
    bool is_in_place;
    OutBuffers in;
  };

  // Mostly gradients; now and then one that is not finite, for the fix-up stream.
  static std::vector<std::byte> Values(DataType dtype, size_t count, std::mt19937_64& random) {
    std::vector<std::byte> bytes(count * SizeOf(dtype));
    std::normal_distribution<double> normal;
    for (size_t i = 0; i < count; ++i) {
      const double x = random() % 5000 == 0 ? INFINITY : std::ldexp(normal(random), static_cast<int>((i / 32 * 7) % 23) - 12);
      const auto narrow = static_cast<float>(x);
      const uint64_t bits = random();
      uint32_t float_bits;
      std::memcpy(&float_bits, &narrow, 4);
      const auto high = static_cast<uint16_t>(float_bits >> 16);
      std::byte* to = bytes.data() + i * SizeOf(dtype);
      if (dtype == DataType::kFloat32) std::memcpy(to, &narrow, 4);
      else if (dtype == DataType::kFloat64) std::memcpy(to, &x, 8);
      else if (dtype == DataType::kBFloat16) std::memcpy(to, &high, 2);
      else std::memcpy(to, &bits, SizeOf(dtype));
    }
    return bytes;
  }
  std::shared_ptr<Work> Submit(Cluster& cluster, size_t c, int r, OutBuffers& out) {
    const Call& call = calls_[c];
    auto& buffer = out[static_cast<size_t>(r)];
    auto spec = AllReduceOf(call.is_in_place ? buffer.data() : call.in[static_cast<size_t>(r)].data(), buffer.data(), call.count, call.dtype,
                            call.traffic_class);
    spec.op = call.op;
    spec.wire = call.wire;
    return cluster.Submit(r, spec);
  }

  int ranks_;
  std::vector<Call> calls_;
};

ClusterOptions Options(int ranks, int trees, uint64_t seed) {
  ClusterOptions options;
  options.ranks = ranks;
  options.trees = trees;
  options.classes = {0, 1};
  options.seed = seed;
  options.faults.drop = 0.01;
  options.timeout_ns = 60'000'000'000;
  return options;
}

// The reference is a run of its own: the kernel's sums, and nobody lost.
TEST(RingSim, whenever_the_aggregators_are_lost_all_ranks_return_the_bits_of_an_undisturbed_job) {
  const uint64_t seed = Seed(20'001);
  std::mt19937_64 random(seed);
  uint64_t in_both = 0;
  for (uint64_t round = 0; round < 24; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 4), trees = 1 + static_cast<int>(random() % 2);
    Calls calls(ranks, random(), 12);
    ClusterOptions options = Options(ranks, trees, random());
    const auto expected = calls.Run(options, 0, 0);
    EXPECT_EQ(calls.summed_in_ring, 0u);
    const uint64_t lost_at_ns = 1 + random() % (1'200 * kUs);
    const auto got = calls.Run(options, lost_at_ns, random() % (300 * kUs));
    in_both += calls.summed_in_ring > 0 && calls.summed_in_kernel > 0;
    for (size_t c = 0; c < got.size(); ++c) {
      for (size_t r = 0; r < got[c].size(); ++r) {
        ASSERT_EQ(got[c][r], expected[c][r]) << "call " << c << ", rank " << r << ", round " << round << ", lost at " << lost_at_ns;
      }
    }
  }
  EXPECT_GT(in_both, 10u) << "too few rounds had sums of both";
}

TEST(RingSim, ranks_that_share_hosts_and_inboxes_switch_too) {
  const uint64_t seed = Seed(20'002);
  for (uint64_t round = 0; round < 6; ++round) {
    Calls calls(5, seed + round, 10);
    ClusterOptions options = Options(5, 1, seed + round);
    options.hosts = 2;
    options.combines = true;
    const auto expected = calls.Run(options, 0, 0);
    const auto got = calls.Run(options, 150 * kUs + round * 150 * kUs, 100 * kUs);
    EXPECT_GT(calls.summed_in_ring, 0u) << "round " << round;
    for (size_t c = 0; c < got.size(); ++c) EXPECT_EQ(got[c], expected[c]) << "call " << c << ", round " << round;
  }
}

// What they sent before had tags for the kernel, which nobody checks here.
TEST(RingSim, jobs_whose_packets_carry_tags_switch_too) {
  const uint64_t seed = Seed(20'003);
  for (uint64_t round = 0; round < 4; ++round) {
    Calls calls(3, seed + round, 10);
    ClusterOptions options = Options(3, 1 + static_cast<int>(round % 2), seed + round);
    options.has_mac = true;
    const auto expected = calls.Run(options, 0, 0);
    const auto got = calls.Run(options, 150 * kUs + round * 150 * kUs, 100 * kUs);
    EXPECT_GT(calls.summed_in_ring, 0u);
    for (size_t c = 0; c < got.size(); ++c) EXPECT_EQ(got[c], expected[c]) << "call " << c << ", round " << round;
  }
}

TEST(RingSim, different_collectives_are_described_by_the_ranks_as_in_the_kernel) {
  ClusterOptions options = Options(3, 1, 3);
  Cluster cluster(options);
  std::vector<Floats> data(3, Floats(1000, 1.0F));
  Works works;
  cluster.LoseAggregators(0);
  cluster.RunFor(1'000 * kUs);
  for (int r = 0; r < 3; ++r) {
    float* buffer = data[static_cast<size_t>(r)].data();
    works.push_back(cluster.Submit(r, AllReduceOf(buffer, buffer, r == 2 ? 900 : 1000, DataType::kFloat32)));
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectError(works, ErrorCode::kMismatch, "all_reduce #0 float32");
}

}  // namespace
}  // namespace mlnet::sim
