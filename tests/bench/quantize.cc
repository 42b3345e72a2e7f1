// SPDX-License-Identifier: Apache-2.0
// Floats to lanes and back, packet by packet as a rank does it, beside memcpy of the same floats in the same run.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstring>
#include <random>

#include "compare.h"
#include "dequantize.h"
#include "quantize.h"

namespace mlnet::bench {
namespace {

using worker::LaneFormat;
using worker::PacketExps;

constexpr int kRanks = 8;
constexpr size_t kUnderWay = 64;  // packets in the send buffer and the inbox, which are used over and over
enum Part { kMeasure, kQuantize, kDequantize, kThereAndBack };

/// A tensor in whole packets, and its way back.
class Tensor {
 public:
  Tensor(int bits, size_t bytes)
      : format_(LaneFormat::Of(bits, kRanks)),
        packet_(MLNET_BLOCKS_MTU1500 * format_.block_elements),
        packets_(bytes / sizeof(float) / packet_),
        exps_(packets_),
        in_(packets_ * packet_),
        out_(packets_ * packet_),
        lanes_(kUnderWay * MLNET_WORDS_MAX) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (float& x : in_) x = normal(random);
    Run(kMeasure);
    Run(kQuantize);
  }

  void Run(Part part) {
    for (size_t i = 0; i < packets_; ++i) {
      if (part == kMeasure) worker::MeasureExps(Floats(in_, i), format_.block_elements, exps_[i]);
      if (part == kQuantize || part == kThereAndBack) {
        benchmark::DoNotOptimize(worker::Quantize(Floats(in_, i), exps_[i], format_, 0, std::nullopt, Lanes(i)));
      }
      if (part == kDequantize || part == kThereAndBack) worker::Dequantize(Lanes(i), exps_[i], format_, 1, Floats(out_, i));
    }
  }
  void Copy() {
    std::memcpy(out_.data(), in_.data(), bytes());
    benchmark::ClobberMemory();
  }
  size_t bytes() const { return in_.size() * sizeof(float); }

 private:
  std::span<float> Floats(std::vector<float>& all, size_t packet) { return std::span(all).subspan(packet * packet_, packet_); }
  void* Lanes(size_t packet) { return &lanes_[packet % kUnderWay * MLNET_WORDS_MAX]; }

  const LaneFormat format_;
  const size_t packet_, packets_;
  std::vector<PacketExps> exps_;
  std::vector<float> in_, out_;
  std::vector<uint64_t> lanes_;
};

template <typename Work>
double Seconds(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return took.count();
}

void Floats(benchmark::State& state, Part part) {
  Tensor tensor(static_cast<int>(state.range(0)), static_cast<size_t>(state.range(1)) << 10);
  std::vector<double> part_s, copy_s;
  for (auto _ : state) {
    part_s.push_back(Seconds([&] { tensor.Run(part); }));
    copy_s.push_back(Seconds([&] { tensor.Copy(); }));
    state.SetIterationTime(part_s.back());
  }
  const auto bytes = static_cast<double>(tensor.bytes());
  state.counters["GBps"] = bytes / MedianOf(part_s) * 1e-9;
  state.counters["memcpy_GBps"] = bytes / MedianOf(copy_s) * 1e-9;
  state.counters["x_memcpy"] = MedianOf(copy_s) / MedianOf(part_s);
}

void Sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"bits", "KiB"})->UseManualTime();
  for (const int bits : {32, 16, 8}) {
    for (const int kib : {256, 65536}) b->Args({bits, kib});
  }
}

BENCHMARK_CAPTURE(Floats, Measure, kMeasure)->Apply(Sizes);
BENCHMARK_CAPTURE(Floats, Quantize, kQuantize)->Apply(Sizes);
BENCHMARK_CAPTURE(Floats, Dequantize, kDequantize)->Apply(Sizes);
BENCHMARK_CAPTURE(Floats, ThereAndBack, kThereAndBack)->Apply(Sizes);

}  // namespace
}  // namespace mlnet::bench
