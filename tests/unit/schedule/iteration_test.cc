// SPDX-License-Identifier: Apache-2.0
// One iteration of VGG-19 and of ResNet-50 through the core and a link, against the best schedule there is: what is lost to
// chunks, credit, the way back of a finish, and having eight classes for 19 or 54 layers. In VGG the convolutions compute
// and the first dense layer (71.5 % of the parameters) transfers; ResNet's later layers are larger than its first ones.
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
constexpr uint64_t kBatchBytes = 65536;       // what the wire does not interrupt
constexpr uint64_t kLatencyNs = 100'000;      // from the end of a chunk's transfer until the core hears of it

std::vector<Shape> ResNet50() {
  std::vector<Shape> shapes = {{9408, 12544}};
  uint64_t in = 64, positions = 3136;
  for (const auto& [inner, blocks] : std::vector<std::pair<uint64_t, int>>{{64, 3}, {128, 4}, {256, 6}, {512, 3}}) {
    const uint64_t out = 4 * inner;
    for (int block = 0; block < blocks; ++block) {
      shapes.insert(shapes.end(), {{in * inner, positions}, {9 * inner * inner, positions}, {inner * out, positions}});
      if (block == 0) shapes.push_back({in * out, positions});
      in = out;
    }
    positions /= 4;
  }
  shapes.push_back({2049000, 1});
  return shapes;
}

std::vector<Layer> LayersAt(const std::vector<Shape>& shapes, uint64_t bytes_per_s) {
  uint64_t work = 0;
  for (const Shape& s : shapes) work += s.parameters * s.positions;
  std::vector<Layer> layers;
  for (const Shape& s : shapes) {
    const auto forward = static_cast<uint64_t>(static_cast<double>(s.parameters * s.positions) / static_cast<double>(work) * kForwardNs);
    layers.push_back({2 * forward, forward, TransferNs(4 * s.parameters, bytes_per_s)});
  }
  return layers;
}

enum class Wire { kFifo, kByClass };  // what is under way: as it came, or the more urgent class first

// The end of forward with the core between gradients and the link.
uint64_t TimeOf(const std::vector<Shape>& shapes, uint64_t bytes_per_s, const Policy& policy, Wire wire) {
  const auto layers = LayersAt(shapes, bytes_per_s);
  std::multimap<uint64_t, std::function<void()>> events;
  std::map<size_t, std::deque<std::pair<Chunk, uint64_t>>> queue;  // with what is left to send
  bool is_busy = false;
  uint64_t now = 0;
  std::vector<uint64_t> done(layers.size());
  std::unique_ptr<Core> core;
  const std::function<void()> transfer = [&] {
    if (is_busy) return;
    for (auto& [level, chunks] : queue) {
      if (chunks.empty()) continue;
      is_busy = true;
      auto& [chunk, left] = chunks.front();
      const uint64_t sent = std::min(left, kBatchBytes);
      const uint64_t end = now + TransferNs(sent, bytes_per_s);
      left -= sent;
      if (left == 0) {
        events.emplace(end + kLatencyNs, [&, whole = chunk] {
          if (core->NotifyFinish(whole)) done[whole.tag] = now;
        });
        chunks.pop_front();
      }
      events.emplace(end, [&] { is_busy = false, transfer(); });
      return;
    }
  };
  core = std::make_unique<Core>(CoreOptions{.policy = policy}, [&](const Chunk& chunk) {
    queue[wire == Wire::kFifo ? 0 : chunk.level].emplace_back(chunk, chunk.bytes);
    transfer();
  });
  const auto ready = ReadyTimes(layers);
  for (size_t i = layers.size(); i-- > 0;) {
    const TaskId id = core->Enqueue({.bytes = 4 * shapes[i].parameters, .priority = static_cast<uint32_t>(i), .tag = i});
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

void Compare(const std::vector<Shape>& shapes, const std::vector<uint64_t>& rates_gbps) {
  std::printf("Gb/s     best ms   FIFO  levels     P3  ByteScheduler  the same, FIFO on the wire\n");
  for (const uint64_t gbps : rates_gbps) {
    SCOPED_TRACE(std::to_string(gbps) + " Gb/s");
    const uint64_t rate = gbps * 125'000'000;
    const auto layers = LayersAt(shapes, rate);
    const ClassMap map = MapLayers(layers, kLevelsMax);
    const auto best = static_cast<double>(BestIteration(layers));
    const auto relative = [&](uint64_t ns) { return static_cast<double>(ns) / best; };
    const double levels = relative(IterationInLevels(layers, map));
    const double fifo = relative(TimeOf(shapes, rate, {}, Wire::kFifo));
    const double p3 = relative(TimeOf(shapes, rate, P3Policy(map), Wire::kByClass));
    const double core = relative(TimeOf(shapes, rate, ByteSchedulerPolicy(map), Wire::kByClass));
    const double on_fifo = relative(TimeOf(shapes, rate, ByteSchedulerPolicy(map), Wire::kFifo));
    std::printf("%4d  %10.1f  %5.3f  %6.3f  %5.3f  %13.3f  %.3f\n", static_cast<int>(gbps), best / 1e6, fifo, levels, p3, core, on_fifo);
    EXPECT_LE(levels, 1.01);
    EXPECT_LE(p3, 1.01);
    EXPECT_LE(core, 1.01);
    EXPECT_LE(core, fifo);
    EXPECT_LE(p3, fifo);
    EXPECT_LE(on_fifo, fifo);
  }
}

TEST(Iteration, vgg19_stays_near_the_best_schedule_and_never_behind_fifo) { Compare(kVgg19, {2, 5, 10, 15, 25, 40}); }

TEST(Iteration, resnet50_stays_near_the_best_schedule_and_never_behind_fifo) {
  const auto shapes = ResNet50();
  EXPECT_EQ(shapes.size(), 54u);
  Compare(shapes, {1, 2, 3, 4, 6, 10});
}

}  // namespace
}  // namespace mlnet::schedule
