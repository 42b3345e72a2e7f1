// SPDX-License-Identifier: Apache-2.0
// One iteration of VGG-19 through the core and a link, against the best schedule there is: what is lost to chunks, credit, the way
// back of a finish, and having eight classes for nineteen layers. Convolutions compute, the first dense layer
// (71.5 % of the parameters) transfers.
#include <gtest/gtest.h>

#include <cstdio>
#include <deque>
#include <map>
#include <numeric>

#include "schedule/class_map.h"
#include "schedule/core.h"
#include "schedule/layers.h"

namespace mlnet::schedule {
namespace {

struct Shape {
  uint64_t parameters, positions;  // a convolution applies its parameters so many times
};
// 64-64, 128-128, 256x4, 512x4, 512x4, three dense
const std::vector<Shape> kVgg19 = {
    {1792, 50176},   {36928, 50176},  {73856, 12544},  {147584, 12544}, {295168, 3136},   {590080, 3136},  {590080, 3136},
    {590080, 3136},  {1180160, 784},  {2359808, 784},  {2359808, 784},  {2359808, 784},   {2359808, 196},  {2359808, 196},
    {2359808, 196},  {2359808, 196},  {102764544, 1},  {16781312, 1},   {4097000, 1}};
constexpr uint64_t kForwardNs = 100'000'000;  // backward takes twice as long
constexpr uint64_t kLatencyNs = 100'000;      // from the end of a chunk's transfer until the core hears of it

std::vector<Layer> LayersAt(uint64_t bytes_per_s) {
  uint64_t work = 0;
  for (const Shape& s : kVgg19) work += s.parameters * s.positions;
  std::vector<Layer> layers;
  for (const Shape& s : kVgg19) {
    const auto forward = static_cast<uint64_t>(static_cast<double>(s.parameters * s.positions) / static_cast<double>(work) * kForwardNs);
    layers.push_back({2 * forward, forward, TransferNs(4 * s.parameters, bytes_per_s)});
  }
  return layers;
}

enum class Wire { kFifo, kByClass };  // what is under way: as it came, or the more urgent class first

// The end of forward with the core between gradients and the link.
uint64_t TimeOf(const std::vector<Layer>& layers, uint64_t bytes_per_s, const Policy& policy, Wire wire) {
  std::multimap<uint64_t, std::function<void()>> events;
  std::map<size_t, std::deque<Chunk>> queue;
  bool is_busy = false;
  uint64_t now = 0;
  std::vector<uint64_t> done(layers.size());
  std::unique_ptr<Core> core;
  const std::function<void()> transfer = [&] {
    if (is_busy) return;
    for (auto& [level, chunks] : queue) {
      if (chunks.empty()) continue;
      is_busy = true;
      const Chunk chunk = chunks.front();
      chunks.pop_front();
      const uint64_t end = now + TransferNs(chunk.bytes, bytes_per_s);
      events.emplace(end, [&] { is_busy = false, transfer(); });
      events.emplace(end + kLatencyNs, [&, chunk] {
        if (core->NotifyFinish(chunk)) done[chunk.tag] = now;
      });
      return;
    }
  };
  core = std::make_unique<Core>(CoreOptions{.policy = policy}, [&](const Chunk& chunk) {
    queue[wire == Wire::kFifo ? 0 : chunk.level].push_back(chunk);
    transfer();
  });
  const auto ready = ReadyTimes(layers);
  for (size_t i = layers.size(); i-- > 0;) {
    const TaskId id = core->Enqueue({.bytes = 4 * kVgg19[i].parameters, .priority = static_cast<uint32_t>(i), .tag = i});
    events.emplace(ready[i], [&, id] { core->NotifyReady(id); });
  }
  while (!events.empty()) {
    const auto event = std::move(events.begin()->second);
    now = events.begin()->first;
    events.erase(events.begin());
    event();
  }
  return EndOfForward(layers, done);
}

TEST(Iteration, in_classes_chunks_and_credit_it_stays_near_the_best_schedule_and_never_behind_fifo) {
  std::printf("Gb/s     best ms   FIFO  levels     P3  ByteScheduler  the same, FIFO on the wire\n");
  for (const uint64_t gbps : {2, 5, 10, 15, 25, 40}) {
    SCOPED_TRACE(std::to_string(gbps) + " Gb/s");
    const uint64_t rate = gbps * 125'000'000;
    const auto layers = LayersAt(rate);
    const ClassMap map = MapLayers(layers, kLevelsMax);
    const auto best = static_cast<double>(BestIteration(layers));
    const double fifo = static_cast<double>(TimeOf(layers, rate, {}, Wire::kFifo)) / best;
    const double levels = static_cast<double>(IterationInLevels(layers, map)) / best;
    const double p3 = static_cast<double>(TimeOf(layers, rate, P3Policy(map), Wire::kByClass)) / best;
    const double core = static_cast<double>(TimeOf(layers, rate, ByteSchedulerPolicy(map), Wire::kByClass)) / best;
    const double on_fifo = static_cast<double>(TimeOf(layers, rate, ByteSchedulerPolicy(map), Wire::kFifo)) / best;
    std::printf("%4d  %10.1f  %5.3f  %6.3f  %5.3f  %13.3f  %.3f\n", static_cast<int>(gbps), best / 1e6, fifo, levels, p3, core, on_fifo);
    EXPECT_LE(levels, 1.01);
    EXPECT_LE(core, 1.08);
    EXPECT_LE(core, fifo);
    EXPECT_LE(p3, fifo);
    EXPECT_LE(on_fifo, fifo);
  }
}

}  // namespace
}  // namespace mlnet::schedule
