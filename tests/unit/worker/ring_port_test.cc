// SPDX-License-Identifier: Apache-2.0
// Engines in a ring over real TCP: sums against the in-memory adder, which knows nothing of rings, and what happens when a
// neighbour falls silent, does not come, or is somebody else.
#include "ring/ring_port.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <algorithm>

#include "unit/worker/loopback.h"
#include "unit/worker/ring_ranks.h"
#include "unit/worker/values.h"

namespace mlnet::worker {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMs = 1'000'000;

struct Case {
  DataType dtype;
  ReduceOp op;
  WireType wire;
  size_t count;
};

CollectiveSpec SpecOf(const Case& c, const Bytes& in, Bytes& out) {
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kAllReduce;
  spec.dtype = c.dtype;
  spec.op = c.op;
  spec.wire = c.wire;
  spec.in = in.data();
  spec.out = out.data();
  spec.count = c.count;
  return spec;
}

CollectiveSpec IntegerSum(std::vector<int32_t>& data) {
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kAllReduce;
  spec.dtype = DataType::kInt32;
  spec.in = spec.out = data.data();
  spec.count = data.size();
  return spec;
}

std::vector<std::shared_ptr<Work>> SubmitAll(RingRanks& ranks, const std::vector<CollectiveSpec>& specs) {
  std::vector<std::shared_ptr<Work>> works;
  for (size_t r = 0; r < ranks.size(); ++r) works.push_back(ranks[r].engine.Submit(specs[r]));
  return works;
}

bool AreDone(const std::vector<std::shared_ptr<Work>>& works) {
  return std::all_of(works.begin(), works.end(), [](const auto& w) { return w->IsDone(); });
}

TEST(RingPortTest, sums_of_every_type_have_the_bits_of_the_slot_protocol) {
  constexpr WireType kWide = WireType::kInt32;
  const std::vector<Case> cases = {
      {DataType::kFloat32, ReduceOp::kSum, kWide, 30'000},          {DataType::kFloat32, ReduceOp::kSum, WireType::kInt16, 9'000},
      {DataType::kFloat32, ReduceOp::kSum, WireType::kInt8, 700},   {DataType::kFloat64, ReduceOp::kSum, kWide, 3'000},
      {DataType::kBFloat16, ReduceOp::kSum, kWide, 5'000},          {DataType::kInt32, ReduceOp::kSum, kWide, 12'345},
      {DataType::kInt64, ReduceOp::kMax, kWide, 777},               {DataType::kFloat16, ReduceOp::kMin, kWide, 1},
      {DataType::kInt8, ReduceOp::kBitXor, kWide, 999},             {DataType::kBool, ReduceOp::kBitOr, kWide, 64}};
  for (const int n : {2, 3, 5}) {
    RingRanks ranks(n);
    ASSERT_NO_FATAL_FAILURE(ranks.Start());
    std::mt19937_64 random(static_cast<uint64_t>(n));
    for (const Case& c : cases) {
      std::vector<Bytes> in, out(static_cast<size_t>(n), Bytes(c.count * SizeOf(c.dtype))), expected = out;
      std::vector<CollectiveSpec> specs, wanted;
      for (int r = 0; r < n; ++r) in.push_back(RandomValues(c.dtype, c.count, Style::kSpecials, random));
      for (size_t r = 0; r < in.size(); ++r) specs.push_back(SpecOf(c, in[r], out[r]));
      for (size_t r = 0; r < in.size(); ++r) wanted.push_back(SpecOf(c, in[r], expected[r]));
      LoopbackShape shape;
      shape.slots = 32;
      Loopback(shape).Run(wanted);
      const auto works = SubmitAll(ranks, specs);
      ASSERT_TRUE(ranks.RunUntil([&] { return AreDone(works); })) << NameOf(c.dtype) << " with " << n << " ranks";
      for (size_t r = 0; r < out.size(); ++r) EXPECT_EQ(out[r], expected[r]) << NameOf(c.dtype) << " " << NameOf(c.op) << ", rank " << r << " of " << n;
    }
    const CommStats stats = ranks[0].engine.Stats();
    EXPECT_EQ(stats.summed_in_kernel, 0u);
    EXPECT_EQ(stats.summed_in_ring, stats.results);
    EXPECT_EQ(stats.summed_in_user_space, stats.results);
    EXPECT_EQ(stats.retransmits, 0u);
  }
}

TEST(RingPortTest, calls_that_came_before_the_ring_are_done_by_it) {
  RingRanks ranks(3);
  std::vector<std::vector<int32_t>> data(3, std::vector<int32_t>(50'000, 7));
  std::vector<CollectiveSpec> specs;
  for (auto& of_rank : data) specs.push_back(IntegerSum(of_rank));
  const auto works = SubmitAll(ranks, specs);
  EXPECT_FALSE(ranks.RunUntil([&] { return AreDone(works); }, 20 * kMs)) << "nobody sums";
  EXPECT_GT(ranks[0].engine.Stats().packets_sent, 0u);
  ASSERT_NO_FATAL_FAILURE(ranks.Start());
  ASSERT_TRUE(ranks.RunUntil([&] { return AreDone(works); }));
  for (const auto& of_rank : data) EXPECT_EQ(std::count(of_rank.begin(), of_rank.end(), 21), 50'000);
}

TEST(RingPortTest, a_rank_that_falls_silent_is_named_by_the_next_one) {
  RingRanks ranks(3, 10 * kMs);
  ASSERT_NO_FATAL_FAILURE(ranks.Start());
  ASSERT_TRUE(ranks.RunUntil([&] { return ranks[0].member.ring() && ranks[1].member.ring() && ranks[2].member.ring(); }));
  const uint64_t began_ns = ranks.NowNs();
  EXPECT_FALSE(ranks.RunUntil([&] { return ranks[0].failure || ranks[1].failure || ranks[2].failure; }, 300 * kMs)) << "all live";
  ranks[1].is_stopped = true;
  ASSERT_TRUE(ranks.RunUntil([&] { return ranks[2].failure.has_value(); }));
  EXPECT_GT(ranks.NowNs(), began_ns + 300 * kMs + 60 * kMs);
  EXPECT_EQ(ranks[2].failure->code, ErrorCode::kRankLost);
  EXPECT_THAT(ranks[2].failure->message, HasSubstr("rank 1 (host w1) has not been heard of in the ring for"));
}

TEST(RingPortTest, a_timeout_names_the_rank_that_did_not_call) {
  RingRanks ranks(3, 10 * kMs, 500 * kMs);
  ASSERT_NO_FATAL_FAILURE(ranks.Start());
  std::vector<std::vector<int32_t>> data(2, std::vector<int32_t>(100, 7));
  std::vector<std::shared_ptr<Work>> works;
  for (size_t r = 0; r < 2; ++r) works.push_back(ranks[r].engine.Submit(IntegerSum(data[r])));
  ASSERT_TRUE(ranks.RunUntil([&] { return AreDone(works); }));
  for (const auto& work : works) {
    const auto outcome = work->Wait();
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, ErrorCode::kTimeout);
    EXPECT_THAT(outcome.error().message, HasSubstr("waiting in the ring for rank 2"));
  }
}

TEST(RingPortTest, who_does_not_know_the_token_is_not_heard) {
  RingRanks ranks(2);
  ASSERT_NO_FATAL_FAILURE(ranks.OpenAll());
  const Fd stranger(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(ranks.port(0));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(stranger.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  struct {
    RingHeader header{sizeof(RingHello), static_cast<uint16_t>(RingKind::kHello), 1};
    RingHello hello{1, 5, 2, {}};
  } message;
  std::memcpy(message.hello.token, "0123456789abcdef0123456789abcdeX", kRingTokenBytes);
  ASSERT_EQ(::send(stranger.get(), &message, sizeof(message), 0), static_cast<ssize_t>(sizeof(message)));
  ranks.Connect(0);
  char byte;
  ASSERT_TRUE(ranks.RunUntil([&] { return ::recv(stranger.get(), &byte, 1, MSG_DONTWAIT) == 0; })) << "it is sent away";
  ranks.Connect(1);  // the real one still gets in
  EXPECT_TRUE(ranks.RunUntil([&] { return ranks[0].member.ring() != nullptr && ranks[1].member.ring() != nullptr; }));
}

TEST(RingPortTest, a_next_rank_that_is_not_there_is_an_error_with_its_address) {
  RingRanks ranks(2);
  ASSERT_NO_FATAL_FAILURE(ranks.OpenAll());
  ranks[0].port.Connect({1, "w1", "127.0.0.1", 1, 1, "w1"}, ranks.NowNs());
  ASSERT_TRUE(ranks.RunUntil([&] { return ranks[0].failure.has_value(); }));
  EXPECT_THAT(ranks[0].failure->ToString(), HasSubstr("connect to 127.0.0.1:1, the next rank in the ring"));
}

TEST(RingPortTest, a_rank_that_leaves_after_its_last_call_is_not_missed) {
  RingRanks ranks(3, 5 * kMs);
  ASSERT_NO_FATAL_FAILURE(ranks.Start());
  std::vector<std::vector<int32_t>> data(3, std::vector<int32_t>(20'000, 1));
  std::vector<CollectiveSpec> specs;
  for (auto& of_rank : data) specs.push_back(IntegerSum(of_rank));
  const auto works = SubmitAll(ranks, specs);
  ASSERT_TRUE(ranks.RunUntil([&] { return works[1]->IsDone(); }));
  ranks[1].port.Linger();
  ranks[1].is_stopped = true;
  ASSERT_TRUE(ranks.RunUntil([&] { return AreDone(works); }));
  for (const auto& of_rank : data) EXPECT_EQ(std::count(of_rank.begin(), of_rank.end(), 3), 20'000);
  EXPECT_FALSE(ranks.RunUntil([&] { return ranks[0].failure || ranks[2].failure; }, 100 * kMs));
}

}  // namespace
}  // namespace mlnet::worker
