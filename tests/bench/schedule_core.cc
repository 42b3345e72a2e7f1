// SPDX-License-Identifier: Apache-2.0
// The scheduler's core alone: tasks and chunks per second, and what it adds to a chunk. `start` puts the chunk aside, as a
// caller that hands it to a socket does; what is aside finishes in order, eight chunks later.
#include <benchmark/benchmark.h>

#include <vector>

#include "schedule/core.h"

namespace mlnet::schedule {
namespace {

ClassMap EightLevels() {
  ClassMap map{.num_levels = kLevelsMax, .last_priority = {}};
  for (uint32_t i = 0; i < kLevelsMax; ++i) map.last_priority[i] = 8 * i + 7;
  return map;
}

// 64 tensors a step, ready as they are enqueued, in chunks as many as the range says.
void Steps(benchmark::State& state, Policy policy, uint64_t num_chunks) {
  constexpr uint64_t kTensors = 64, kBytes = 1 << 20;
  constexpr size_t kUnderWay = 8;
  policy.partition_bytes = policy.partition_bytes == 0 ? 0 : kBytes / num_chunks;
  std::vector<Chunk> aside(kUnderWay);
  size_t begin = 0, end = 0;  // of what is aside, growing
  Core core({.policy = policy}, [&](const Chunk& c) { aside[end++ % kUnderWay] = c; });
  uint64_t tasks = 0;
  for (auto _ : state) {
    for (uint64_t i = 0; i < kTensors; ++i) {
      core.NotifyReady(core.Enqueue({.bytes = kBytes, .priority = static_cast<uint32_t>(kTensors - 1 - i), .tag = i}));
      if (policy.credit_bytes == 0) {
        while (begin != end) benchmark::DoNotOptimize(core.NotifyFinish(aside[begin++ % kUnderWay]));
      }
    }
    while (begin != end) {
      const Chunk chunk = aside[begin++ % kUnderWay];
      benchmark::DoNotOptimize(core.NotifyFinish(chunk));
    }
    tasks += kTensors;
  }
  state.counters["tasks"] = benchmark::Counter(static_cast<double>(tasks), benchmark::Counter::kIsRate);
  state.counters["chunks"] = benchmark::Counter(static_cast<double>(end), benchmark::Counter::kIsRate);
  state.counters["per_chunk"] =
      benchmark::Counter(static_cast<double>(end), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void Off(benchmark::State& state) { Steps(state, {}, 1); }
BENCHMARK(Off);

void WholeTensorsInClasses(benchmark::State& state) { Steps(state, {.classes = EightLevels()}, 1); }
BENCHMARK(WholeTensorsInClasses);

// Nested credit of one chunk: at most one per level is under way, so eight fit aside.
void ChunksInClassesWithCredit(benchmark::State& state) {
  Steps(state, {.partition_bytes = 1, .classes = EightLevels(), .credit_bytes = 1}, static_cast<uint64_t>(state.range(0)));
}
BENCHMARK(ChunksInClassesWithCredit)->Arg(1)->Arg(16)->Arg(256);

}  // namespace
}  // namespace mlnet::schedule
