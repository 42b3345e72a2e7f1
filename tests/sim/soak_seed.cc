// SPDX-License-Identifier: Apache-2.0
#include "sim/soak_seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "sim/soak_calls.h"

namespace mlnet::sim {
namespace {

struct StaleFrame {
  int host;
  test::Bytes bytes;
};

// Frames of the last job that may turn up in the next one, which has the same number.
std::vector<StaleFrame> g_stale;
constexpr size_t kStaleMost = 64;

ClusterOptions RandomShape(std::mt19937_64& random) {
  const auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
  ClusterOptions options;
  options.hosts = 1 + below(6);
  options.ranks = std::max(2, options.hosts + below(static_cast<uint64_t>(options.hosts) + 3));
  options.workers_sum = below(2) == 0;
  options.trees = 1 + below(3);
  options.combines = below(2) == 0;
  const bool has_racks = options.hosts >= 4 && below(2) == 0;
  if (has_racks) options.racks = options.hosts % 2 == 0 ? 2 : 1;
  options.is_multicast = below(2) == 0;
  options.log2_slots = static_cast<uint8_t>(1 + below(5));
  options.fixup_log2_slots = 2;
  options.classes = {0, 2, 5};
  options.log2_slots_most = 5;
  options.trees_most = 3;
  options.window_first = static_cast<uint32_t>(1 + below(64));
  const bool is_one_level = !options.combines && options.racks == 0;
  if (is_one_level && below(3) == 0) options.first_seq = (1ULL << 32) - 64 - random() % 100;
  options.small_bytes = below(4) == 0 ? 16384 : 0;
  constexpr uint32_t kSizes[] = {0, 0, 12, MLNET_BLOCKS_MAX};
  options.blocks = kSizes[below(4)];
  options.timeout_ns = 600'000'000'000;
  return options;
}

// Mostly few of each, as on a bad network; now and then a kind of its own, and much of it.
Faults RandomFaults(std::mt19937_64& random) {
  const auto level = [&] { return random() % 3 == 0 ? 0.0 : static_cast<double>(random() % 200) / 10'000; };
  Faults faults{.drop = level(), .duplicate = level(), .reorder = level(), .corrupt = level(), .truncate = level() / 4};
  if (random() % 16 == 0) faults.drop = 0.1;
  if (random() % 16 == 0) faults.reorder = 0.3;
  if (random() % 16 == 0) faults.duplicate = 0.3;
  faults.delay_ns = 1'000 + random() % 50'000;
  faults.jitter_ns = random() % 100'000;
  faults.ns_per_byte = random() % 2 == 0 ? 0 : random() % 20;
  return faults;
}

void InjectStale(Cluster& cluster, const ClusterOptions& options, std::mt19937_64& random, Figures& figures) {
  const int hosts = options.hosts + (options.workers_sum ? 0 : options.trees);
  for (StaleFrame& stale : g_stale) {
    if (stale.host >= hosts) continue;
    cluster.Inject(random() % 3'000'000, stale.host, std::move(stale.bytes));
    ++figures.stale;
  }
  g_stale.clear();
  cluster.network().SetTap([&random](int host, const test::Bytes& frame) {
    if (random() % 256 != 0) return;
    if (g_stale.size() < kStaleMost) g_stale.push_back({host, frame});
    else g_stale[random() % kStaleMost] = {host, frame};
  });
}

void Account(Cluster& cluster, Figures& figures) {
  const Traffic& t = cluster.traffic();
  figures.faults.frames += t.frames;
  figures.faults.dropped += t.dropped;
  figures.faults.duplicated += t.duplicated;
  figures.faults.reordered += t.reordered;
  figures.faults.corrupted += t.corrupted;
  figures.faults.truncated += t.truncated;
  figures.events += cluster.packet_events();
  for (int r = 0; r < cluster.ranks(); ++r) {
    const CommStats stats = cluster.Stats(r);
    figures.retransmits += stats.retransmits;
    figures.early_resends += stats.early_resends;
    figures.busy += stats.busy;
    figures.held += stats.held;
  }
  for (int h = 0; h < cluster.hosts(); ++h) {
    const mlnet_stats stats = cluster.HostStats(h);
    for (size_t v = 0; v < figures.verdicts.size(); ++v) figures.verdicts[v] += stats.verdicts[v];
  }
}

void Run(uint64_t seed, Figures& figures) {
  std::mt19937_64 random(seed), stale_random(seed + 1);
  ClusterOptions options = RandomShape(random);
  options.faults = RandomFaults(random);
  options.seed = random();
  Cluster cluster(options);
  Observer& observer = cluster.Observe();
  InjectStale(cluster, options, stale_random, figures);
  std::vector<std::unique_ptr<SoakCall>> calls;
  const size_t num_calls = 16 + random() % 48;
  for (size_t i = 0; i < num_calls; ++i) {
    calls.push_back(RandomCall(options.ranks, random));
    calls.back()->block_bytes = options.blocks > MLNET_PAIRS_MAX ? 256 : 128;
    calls.back()->traffic_class = options.classes[random() % options.classes.size()];
  }
  Works works;
  for (int r = 0; r < options.ranks; ++r) {
    cluster.At(random() % 2'000'000, [&, r] {
      for (auto& call : calls) works.push_back(cluster.Submit(r, call->SpecOf(r)));
    });
  }
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  for (const auto& call : calls) {
    const std::string wrong = call->Check();
    EXPECT_EQ(wrong, "");
    figures.wrong += wrong.empty() ? 0 : 1;
    figures.elements += call->elements();
  }
  figures.calls += calls.size();
  figures.sums_compared += observer.sums_compared();
  figures.wrong += observer.complaints().size();
  EXPECT_EQ(observer.complaints(), std::vector<std::string>{});
  Account(cluster, figures);
}

// Of this process; the machine may have other work.
double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

Figures RunSeed(uint64_t seed) {
  const double before = CpuSeconds();
  Figures figures;
  Run(seed, figures);
  figures.seeds = 1;
  figures.has_failed = testing::Test::HasFailure();
  figures.cpu_seconds = CpuSeconds() - before;
  return figures;
}

Figures& Figures::operator+=(const Figures& other) {
  seeds += other.seeds;
  events += other.events;
  calls += other.calls;
  elements += other.elements;
  sums_compared += other.sums_compared;
  wrong += other.wrong;
  retransmits += other.retransmits;
  early_resends += other.early_resends;
  held += other.held;
  busy += other.busy;
  stale += other.stale;
  for (size_t v = 0; v < verdicts.size(); ++v) verdicts[v] += other.verdicts[v];
  faults.frames += other.faults.frames;
  faults.dropped += other.faults.dropped;
  faults.duplicated += other.faults.duplicated;
  faults.reordered += other.faults.reordered;
  faults.corrupted += other.faults.corrupted;
  faults.truncated += other.faults.truncated;
  cpu_seconds += other.cpu_seconds;
  has_failed |= other.has_failed;
  return *this;
}

}  // namespace mlnet::sim
