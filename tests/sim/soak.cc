// SPDX-License-Identifier: Apache-2.0
// Random jobs, collectives and faults, one after the other, until there have been enough: every result is compared with
// one computed elsewhere, every sum on the wire with what the ranks sent, and the order of sending with the rules.
//   sim_soak                                                what tools/check runs; with --full (MLNET_LONG=1) more
//   sim_soak --events 1e8 --seeds 10000 [--first-seed N]    at least so many of both
// A seed that fails is printed, and can be run alone: --first-seed N --seeds 1 --events 0
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "sim/soak_calls.h"

namespace mlnet::sim {
namespace {

struct SoakOptions {
  double events = 6e5;
  uint64_t seeds = 50;
  uint64_t first_seed = 1;
};
SoakOptions g_options;

struct Figures {
  uint64_t seeds = 0, events = 0, calls = 0, elements = 0, sums_compared = 0, retransmits = 0, stale = 0, busy = 0, held = 0;
  Traffic faults;
};

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
    figures.busy += stats.busy;
    figures.held += stats.held;
  }
}

void RunSeed(uint64_t seed, Figures& figures) {
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
    EXPECT_EQ(call->Check(), "");
    figures.elements += call->elements();
  }
  figures.calls += calls.size();
  figures.sums_compared += observer.sums_compared();
  EXPECT_EQ(observer.complaints(), std::vector<std::string>{});
  Account(cluster, figures);
}

// Of this process; the machine may have other work.
double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void Print(const Figures& f, double seconds) {
  const auto n = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf("soak: %llu seeds, %llu packet events (%.0f a second, %.0f a second of CPU), %llu collectives, %llu elements and %llu sums on "
              "the wire checked\n",
              n(f.seeds), n(f.events), static_cast<double>(f.events) / seconds, static_cast<double>(f.events) / CpuSeconds(), n(f.calls),
              n(f.elements), n(f.sums_compared));
  std::printf("soak: of %llu frames %llu dropped, %llu duplicated, %llu reordered, %llu corrupted, %llu truncated; %llu of an older "
              "epoch; %llu retransmissions, %llu HELD, %llu BUSY\n",
              n(f.faults.frames), n(f.faults.dropped), n(f.faults.duplicated), n(f.faults.reordered), n(f.faults.corrupted),
              n(f.faults.truncated), n(f.stale), n(f.retransmits), n(f.held), n(f.busy));
}

TEST(SoakSim, every_result_of_random_jobs_under_random_faults_is_right) {
  Figures figures;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  while (figures.seeds < g_options.seeds || static_cast<double>(figures.events) < g_options.events) {
    const uint64_t seed = g_options.first_seed + figures.seeds;
    RunSeed(seed, figures);
    ++figures.seeds;
    if (HasFailure()) {
      std::printf("soak: seed %llu failed; alone: sim_soak --first-seed %llu --seeds 1 --events 0\n", static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(seed));
      break;
    }
    if (figures.seeds % 500 == 0) Print(figures, seconds());
    std::fflush(stdout);
  }
  Print(figures, seconds());
}

}  // namespace
}  // namespace mlnet::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* is_long = std::getenv("MLNET_LONG");
  if (is_long != nullptr && is_long[0] == '1') mlnet::sim::g_options = {.events = 2e7, .seeds = 2000};
  CLI::App app("random jobs on a simulated network");
  using mlnet::sim::g_options;
  app.add_option("--events", g_options.events, "at least so many packet events");
  app.add_option("--seeds", g_options.seeds, "at least so many seeds");
  app.add_option("--first-seed", g_options.first_seed, "the others follow it");
  CLI11_PARSE(app, argc, argv);
  return RUN_ALL_TESTS();
}
