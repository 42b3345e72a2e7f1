// SPDX-License-Identifier: Apache-2.0
// Random jobs, collectives and faults, one after the other, until there have been enough: every result is compared with
// one computed elsewhere, every sum on the wire with what the ranks sent, and the order of sending with the rules.
//   sim_soak                                                what tools/check runs; with --full (MLNET_LONG=1) 10^8 packet events
//   sim_soak --events 1e8 --seeds 10000 [--first-seed N]    at least so many of both
// A packet event is one packet taken by one run of a program: on its way in, or as one of the copies that leave.
// A seed that fails is printed, and can be run alone: --first-seed N --seeds 1 --events 0 --processes 1
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "sim/soak_processes.h"

namespace mlnet::sim {
namespace {

using Clock = std::chrono::steady_clock;

struct SoakOptions {
  double events = 6e5;
  uint64_t seeds = 50;
  uint64_t first_seed = 1;
  int processes = 2;
};
SoakOptions g_options;

constexpr std::chrono::seconds kProgress{30};

unsigned long long Number(uint64_t value) { return value; }

void PrintTotals(const Figures& f, double seconds) {
  std::printf("soak: %llu seeds, %llu packet events in %.1f s (%.0f a second, %.0f a second of CPU), %llu collectives, %llu elements and "
              "%llu sums on the wire checked, %llu wrong\n",
              Number(f.seeds), Number(f.events), seconds, static_cast<double>(f.events) / seconds,
              static_cast<double>(f.events) / f.cpu_seconds, Number(f.calls), Number(f.elements), Number(f.sums_compared), Number(f.wrong));
  std::fflush(stdout);
}

void PrintFaults(const Figures& f) {
  std::printf("soak: of %llu frames %llu dropped, %llu duplicated, %llu reordered, %llu corrupted, %llu truncated; %llu of an older epoch\n",
              Number(f.faults.frames), Number(f.faults.dropped), Number(f.faults.duplicated), Number(f.faults.reordered),
              Number(f.faults.corrupted), Number(f.faults.truncated), Number(f.stale));
  std::printf("soak: %llu retransmissions, %llu of them because later results overtook; answered HELD %llu, BUSY %llu\n",
              Number(f.retransmits), Number(f.early_resends), Number(f.held), Number(f.busy));
}

// How packets ended, of the job's own epochs.
void PrintVerdicts(const Figures& f) {
  constexpr const char* kNames[] = {
#define MLNET_X(name, action, help) #name,
      MLNET_VERDICTS(MLNET_X)
#undef MLNET_X
  };
  std::string text;
  for (size_t v = 0; v < f.verdicts.size(); ++v) {
    if (f.verdicts[v] > 0) text += std::string(text.empty() ? "" : ", ") + kNames[v] + ' ' + std::to_string(f.verdicts[v]);
  }
  std::printf("soak: verdicts: %s\n", text.c_str());
}

TEST(SoakSim, every_result_of_random_jobs_under_random_faults_is_right) {
  Figures sum;
  const auto start = Clock::now();
  auto told = start;
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  RunInProcesses(g_options.processes, g_options.first_seed, [&](uint64_t seed, const Figures& figures) {
    sum += figures;
    if (figures.has_failed) {
      std::printf("soak: seed %llu failed; alone: sim_soak --first-seed %llu --seeds 1 --events 0 --processes 1\n", Number(seed), Number(seed));
    }
    if (Clock::now() - told >= kProgress) {
      told = Clock::now();
      PrintTotals(sum, seconds());
    }
    return !sum.has_failed && (sum.seeds < g_options.seeds || static_cast<double>(sum.events) < g_options.events);
  });
  PrintTotals(sum, seconds());
  PrintFaults(sum);
  PrintVerdicts(sum);
}

}  // namespace
}  // namespace mlnet::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* is_long = std::getenv("MLNET_LONG");
  using mlnet::sim::g_options;
  if (is_long != nullptr && is_long[0] == '1') g_options = {.events = 1e8, .seeds = 10'000};
  CLI::App app("random jobs on a simulated network");
  app.add_option("--events", g_options.events, "at least so many packet events");
  app.add_option("--seeds", g_options.seeds, "at least so many seeds");
  app.add_option("--first-seed", g_options.first_seed, "the others follow it");
  app.add_option("--processes", g_options.processes, "that share the seeds")->check(CLI::Range(1, 64));
  CLI11_PARSE(app, argc, argv);
  return RUN_ALL_TESTS();
}
