// SPDX-License-Identifier: Apache-2.0
// Incast: the links of all ranks end in one port of the aggregator's, as fast as each of them, whose queue is shorter than what they
// may have on their way together. What the queue drops is sent again and the sum gets on at the port's rate; where it marks, it drops little.
#include <gtest/gtest.h>

#include "sim/sim_calls.h"

namespace mlnet::sim {
namespace {

constexpr int kRanks = 8;
constexpr int kAggregator = kRanks;  // the first host without ranks
constexpr uint64_t kNsPerByte = 16;  // 500 Mb/s
constexpr size_t kFloats = 200'000;
constexpr uint64_t kFrameBytes = 1514;  // of 352 floats

struct Outcome {
  uint64_t took_ns = 0;
  Traffic traffic;
  CommStats stats;
};

Outcome Simulate(const Port& port) {
  Cluster cluster({.ranks = kRanks, .log2_slots = 8, .faults = {.delay_ns = 20'000, .ns_per_byte = kNsPerByte}, .seed = Seed(7)});
  cluster.network().SetPort(kAggregator, port);
  FloatCall warm_up(kRanks, kFloats, 1), timed(kRanks, kFloats, 2);
  uint64_t begin_ns = 0;
  for (FloatCall* call : {&warm_up, &timed}) {
    begin_ns = cluster.now_ns();
    Works works;
    for (int r = 0; r < kRanks; ++r) works.push_back(call->Submit(cluster, r));
    EXPECT_TRUE(cluster.RunUntilDone());
    ExpectDone(works);
    call->Check();
  }
  PrintTraffic(cluster);
  return {cluster.now_ns() - begin_ns, cluster.traffic(), cluster.Stats(0)};
}

// What the port needs for one packet of each rank for each part of the tensor.
double PortNs() { return static_cast<double>((kFloats + 351) / 352 * kRanks * kFrameBytes * kNsPerByte); }

TEST(CongestionSim, a_queue_that_is_too_short_costs_time_and_no_standstill) {
  const Outcome lossless = Simulate({.ns_per_byte = kNsPerByte, .queue_bytes = 16 << 20});
  EXPECT_EQ(lossless.traffic.overflowed, 0u);
  for (const uint64_t kib : {512, 128, 64}) {
    const Outcome outcome = Simulate({.ns_per_byte = kNsPerByte, .queue_bytes = kib << 10});
    std::printf("%llu KiB: %.2f times as long as with a queue for all\n", static_cast<unsigned long long>(kib),
                static_cast<double>(outcome.took_ns) / static_cast<double>(lossless.took_ns));
    EXPECT_LT(outcome.took_ns, 3 * lossless.took_ns);
  }
}

TEST(CongestionSim, a_queue_that_marks_drops_little_and_stays_short) {
  const Outcome lossless = Simulate({.ns_per_byte = kNsPerByte, .queue_bytes = 16 << 20});
  const Outcome dropping = Simulate({.ns_per_byte = kNsPerByte, .queue_bytes = 128 << 10});
  const Outcome marking = Simulate({.ns_per_byte = kNsPerByte, .queue_bytes = 128 << 10, .mark_bytes = 48 << 10});
  std::printf("marking: %.2f times as long; %llu of %llu frames dropped (without marks %llu), %llu marked\n",
              static_cast<double>(marking.took_ns) / static_cast<double>(lossless.took_ns), static_cast<unsigned long long>(marking.traffic.overflowed),
              static_cast<unsigned long long>(marking.traffic.frames), static_cast<unsigned long long>(dropping.traffic.overflowed),
              static_cast<unsigned long long>(marking.traffic.marked));
  EXPECT_GT(marking.traffic.marked, 0u);
  EXPECT_GT(marking.stats.marked, 0u);
  EXPECT_LT(marking.traffic.overflowed * 4, dropping.traffic.overflowed);
  EXPECT_LT(static_cast<double>(marking.took_ns), 1.2 * static_cast<double>(lossless.took_ns));
}

// The bound of both: the port's own time.
TEST(CongestionSim, the_port_is_the_limit) {
  const Outcome lossless = Simulate({.ns_per_byte = kNsPerByte, .queue_bytes = 16 << 20});
  EXPECT_GT(static_cast<double>(lossless.took_ns), PortNs());
  std::printf("%.2f of the port's time\n", PortNs() / static_cast<double>(lossless.took_ns));
}

}  // namespace
}  // namespace mlnet::sim
