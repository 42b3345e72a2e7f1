// SPDX-License-Identifier: Apache-2.0
// Several traffic classes at once: the higher one first, nobody for ever, and calls that are cut into parts.
#include "sim/sim_calls.h"

namespace mlnet::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr size_t kPacketElements = 352;  // 11 blocks of 32

Works SubmitAll(Cluster& cluster, FloatCall& call, int traffic_class) {
  Works works;
  for (int r = 0; r < cluster.ranks(); ++r) works.push_back(call.Submit(cluster, r, traffic_class));
  return works;
}

TEST(ClassesSim, an_urgent_tensor_overtakes_a_backlog) {
  constexpr uint64_t kBacklog = 3000, kUrgent = 300;  // packets
  Cluster cluster({.ranks = 3, .log2_slots = 5, .classes = {0, 5}});
  FloatCall backlog(3, kBacklog * kPacketElements, 1), urgent(3, kUrgent * kPacketElements, 2);
  Works works = SubmitAll(cluster, backlog, 0), urgent_works;
  const uint64_t begin_ns = cluster.now_ns() + kMs;
  uint64_t results_before = 0, results_after = 0;
  cluster.At(begin_ns, [&] {
    results_before = cluster.Stats(0).results;
    urgent_works.push_back(urgent.Submit(cluster, 0, 5, [&](const Result<void>&) { results_after = cluster.Stats(0).results; }));
    for (int r = 1; r < 3; ++r) urgent_works.push_back(urgent.Submit(cluster, r, 5));
  });
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  ExpectDone(urgent_works);
  backlog.Check();
  urgent.Check();
  ASSERT_GT(results_before, 0u);
  ASSERT_LT(results_after, kBacklog) << "the backlog was over too soon to say anything";
  // What was on its way, what went while the urgent one had only probes out, and the last results of it: a few pools of 32.
  EXPECT_LE(results_after - results_before, kUrgent + 5 * 32);
}

TEST(ClassesSim, a_backlog_goes_on_while_the_urgent_waits_for_a_slow_rank) {
  Cluster cluster({.ranks = 3, .log2_slots = 5, .classes = {0, 5}});
  FloatCall backlog(3, 1000 * kPacketElements, 3), urgent(3, 100 * kPacketElements, 4);
  Works works = SubmitAll(cluster, backlog, 0);
  works.push_back(urgent.Submit(cluster, 0, 5));
  works.push_back(urgent.Submit(cluster, 1, 5));
  bool was_done = false;
  cluster.At(cluster.now_ns() + 400 * kMs, [&] {
    was_done = works[0]->IsDone();
    works.push_back(urgent.Submit(cluster, 2, 5));
  });
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  EXPECT_TRUE(was_done);
  backlog.Check();
  urgent.Check();
}

TEST(ClassesSim, order_among_classes_may_differ_from_rank_to_rank_under_faults) {
  const uint64_t seed = Seed(77);
  Cluster cluster({.ranks = 3, .log2_slots = 4, .classes = {0, 3, 7}, .faults = OnePercentOfAll(), .seed = seed});
  std::vector<FloatCall> calls;
  for (uint64_t i = 0; i < 3; ++i) calls.emplace_back(3, 40'000 + 977 * i, seed + i);
  Works works;
  for (int r = 0; r < 3; ++r) {
    for (int i = 0; i < 3; ++i) {
      const int c = (i + r) % 3;  // another class first on each rank
      works.push_back(calls[static_cast<size_t>(c)].Submit(cluster, r, c == 0 ? 0 : c == 1 ? 3 : 7));
    }
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  for (const FloatCall& call : calls) call.Check();
}

// A tail below small_bytes would be added in rank order by each rank, with other bits, if it were a call of its own.
TEST(ClassesSim, parts_have_the_bits_of_the_whole) {
  constexpr size_t kCount = 3 * 4096 + 100, kPart = 4096;
  constexpr size_t kSmall = 16384;
  std::vector<Floats> in, whole, parts;
  for (uint64_t r = 0; r < 3; ++r) {
    in.push_back(RandomFloats(kCount, 50 + r));
    whole.push_back(Floats(kCount, -1.0F));
    parts.push_back(Floats(kCount, -2.0F));
  }
  Cluster cluster({.ranks = 3, .small_bytes = kSmall});
  Works works;
  for (size_t r = 0; r < 3; ++r) {
    works.push_back(cluster.Submit(static_cast<int>(r), AllReduceOf(in[r].data(), whole[r].data(), kCount, DataType::kFloat32)));
    for (size_t at = 0; at < kCount; at += kPart) {
      auto spec = AllReduceOf(in[r].data() + at, parts[r].data() + at, std::min(kPart, kCount - at), DataType::kFloat32);
      spec.is_part = true;
      works.push_back(cluster.Submit(static_cast<int>(r), spec));
    }
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  for (size_t r = 0; r < 3; ++r) EXPECT_EQ(std::memcmp(whole[r].data(), parts[r].data(), kCount * sizeof(float)), 0) << r;
  ExpectSumWithinBound(in, parts[0]);
}

TEST(ClassesSim, a_call_back_may_make_the_next_call) {
  constexpr int kCalls = 5;
  Cluster cluster({.ranks = 2});
  std::vector<std::vector<float>> buffers(2, std::vector<float>(1000, 1.0F));
  std::vector<int> done(2, 0);
  Works works;
  std::function<void(int)> next = [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    auto spec = AllReduceOf(buffers[r].data(), buffers[r].data(), 1000, DataType::kFloat32);
    spec.on_done = [&, rank](const Result<void>& outcome) {
      EXPECT_TRUE(outcome.has_value());
      if (++done[static_cast<size_t>(rank)] < kCalls) next(rank);
    };
    works.push_back(cluster.Submit(rank, spec));
  };
  for (int r = 0; r < 2; ++r) next(r);
  while (cluster.RunUntilDone() && done[0] + done[1] < 2 * kCalls) {
  }
  EXPECT_EQ(done, (std::vector<int>{kCalls, kCalls}));
  for (const auto& buffer : buffers) EXPECT_EQ(buffer, std::vector<float>(1000, 32.0F));  // doubled five times
}

TEST(ClassesSim, a_call_back_hears_of_every_end_once) {
  std::vector<std::string> heard;
  const auto hear = [&heard](const Result<void>& outcome) { heard.push_back(outcome ? "done" : std::string(ErrorCodeName(outcome.error().code))); };
  std::vector<float> buffer(100'000, 1.0F);
  {
    Cluster cluster({.ranks = 2});
    auto spec = AllReduceOf(buffer.data(), buffer.data(), buffer.size(), DataType::kFloat32);
    spec.on_done = hear;
    cluster.Submit(0, spec);
    cluster.RunFor(5 * kMs);  // the other rank never calls
    EXPECT_TRUE(heard.empty());
    spec.traffic_class = 6;  // not open
    cluster.Submit(0, spec);
    ASSERT_EQ(heard.size(), 1u);
    spec.traffic_class = 0;
    cluster.Submit(0, spec);
    cluster.engine(0).Fail({ErrorCode::kCancelled, "test", ""});
    EXPECT_EQ(heard.size(), 3u);
    cluster.Submit(0, spec);
    EXPECT_EQ(heard.size(), 4u);
  }
  EXPECT_EQ(heard, (std::vector<std::string>{"E_INVALID_ARGUMENT", "E_CANCELLED", "E_CANCELLED", "E_CANCELLED"}));
}

// Urgent calls that never end, two of them on their way at any time: the backlog is done within its own timeout.
TEST(ClassesSim, nobody_starves) {
  Cluster cluster({.ranks = 2, .log2_slots = 4, .classes = {0, 5}, .timeout_ns = 400 * kMs, .faults = {.ns_per_byte = 8}});
  FloatCall backlog(2, 2'000 * kPacketElements, 1), urgent(2, 200 * kPacketElements, 2);
  Works works = SubmitAll(cluster, backlog, 0);
  int left[2] = {1'000, 1'000};
  std::function<void(int)> go_on = [&](int rank) {
    if (works[static_cast<size_t>(rank)]->IsDone() || --left[rank] < 0) return;
    urgent.Submit(cluster, rank, 5, [&, rank](const Result<void>& outcome) {
      if (outcome) go_on(rank);
    });
  };
  for (int i = 0; i < 2; ++i) {
    for (int r = 0; r < 2; ++r) go_on(r);
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  backlog.Check();
  EXPECT_GT(std::min(left[0], left[1]), 0) << "the urgent calls ended first: this says nothing";
}

TEST(ClassesSim, a_timeline_has_every_collective_once_and_in_order) {
  Cluster cluster({.ranks = 2, .trees = 2, .log2_slots = 4, .classes = {0, 3}, .faults = OnePercentOfAll(), .seed = Seed(5)});
  FloatCall before(2, 1'000, 1), low(2, 40'000, 2), high(2, 20'000, 3), after(2, 1'000, 4);
  const auto run = [&](FloatCall& call, int traffic_class) {
    Works works = SubmitAll(cluster, call, traffic_class);
    ASSERT_TRUE(cluster.RunUntilDone());
    ExpectDone(works);
  };
  run(before, 0);
  for (int r = 0; r < 2; ++r) cluster.engine(r).SetTracing(true);
  const uint64_t begin_ns = cluster.now_ns();
  run(low, 0);
  run(high, 3);
  for (int r = 0; r < 2; ++r) {
    cluster.engine(r).SetTracing(false);
    cluster.engine(r).RunOnce(cluster.now_ns());
  }
  run(after, 0);
  for (int r = 0; r < 2; ++r) {
    uint64_t bytes[8] = {};
    for (const worker::TraceRecord& record : cluster.Traced(r)) {
      if (record.stream == 0) bytes[record.traffic_class] += record.bytes;
      EXPECT_LT(record.tree, 2);
      EXPECT_GE(record.called_ns, begin_ns);
      EXPECT_LE(record.called_ns, record.sent_first_ns);
      EXPECT_LE(record.sent_first_ns, record.sent_last_ns);
      EXPECT_LT(record.sent_last_ns, record.done_ns);
      EXPECT_LE(record.done_ns, cluster.now_ns());
    }
    // By packet, rounded down.
    EXPECT_NEAR(static_cast<double>(bytes[0]), 160'000, 500);
    EXPECT_NEAR(static_cast<double>(bytes[3]), 80'000, 500);
  }
}

}  // namespace
}  // namespace mlnet::sim
