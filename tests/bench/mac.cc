// SPDX-License-Identifier: Apache-2.0
// What a tag costs: each row without one and with one, of packets of the same size, in one run. Kernel rows are ns per
// packet as BPF_PROG_TEST_RUN measures each, its own clock reads included; needs CAP_BPF.
#include <benchmark/benchmark.h>

#include <memory>
#include <stdexcept>

#include "bpf/fixture.h"
#include "harness/reference_mac.h"
#include "wire/packet.h"

namespace mlnet::test {
namespace {

constexpr int kRuns = 5000;
constexpr size_t kBlocks = 10;  // what an MTU of 1500 has room for with a tag
const mlnet_key kKey = TestKey(1), kOtherKey = TestKey(2);

/// An aggregator and one job: one whose packets have tags, or one that has none.
class Aggregator {
 public:
  explicit Aggregator(bool has_mac) : key_(has_mac ? &kKey : nullptr), job_(++Jobs()) {
    JobSpec spec = Job(MLNET_NODE_AGGREGATE | MLNET_NODE_MULTICAST);
    spec.job = job_;
    spec.key = key_;
    host().SetJob(spec);
  }
  Frame FromChild(uint8_t child, uint64_t seq) const {
    Frame f = Contribution(child, seq, kBlocks);
    f.job = job_;
    f.key = key_;
    return f;
  }
  /// Loading takes seconds: one for all.
  static BpfHost& host() {
    static const std::unique_ptr<BpfHost> host = BpfHost::Create();
    if (host == nullptr) throw std::runtime_error("cannot load the programs");
    return *host;
  }

 private:
  static uint16_t& Jobs() {
    static uint16_t last = 0;
    return last;
  }
  const mlnet_key* key_;
  uint16_t job_;
};

void Repeat(benchmark::State& state, const Frame& frame) {
  const Bytes bytes = frame.Build();
  for (auto _ : state) {
    state.SetIterationTime(Aggregator::host().RunQuick(bytes).ns * 1e-9);
  }
}

/// Parsed, admitted, verified, and dropped for its age: all but the sum.
void AdmitAndVerify(benchmark::State& state) {
  const Aggregator aggregator(state.range(0) != 0);
  for (uint64_t seq = 0; seq <= 2 * kSlots; seq += kSlots) {
    for (uint8_t c = 0; c < kChildren; ++c) Aggregator::host().Run(aggregator.FromChild(c, seq));
  }
  Repeat(state, aggregator.FromChild(0, 0));
}

/// Of an epoch that is over: dropped before anything of the payload is read.
void OldEpoch(benchmark::State& state) {
  const Aggregator aggregator(state.range(0) != 0);
  Frame old = aggregator.FromChild(0, 0);
  old.epoch = 9;
  Repeat(state, old);
}

/// From the address of another child; with a tag of another key, which is what is found first.
void Forged(benchmark::State& state) {
  const Aggregator aggregator(state.range(0) != 0);
  Frame forged = aggregator.FromChild(0, 0);
  forged.saddr = WorkerIp(1);
  if (state.range(0) != 0) forged.key = &kOtherKey;
  Repeat(state, forged);
}

/// A whole sum of three children: the first copied, one added, the last made the result that leaves.
void Sum(benchmark::State& state) {
  const Aggregator aggregator(state.range(0) != 0);
  uint64_t seq = 0;
  for (auto _ : state) {
    double seconds = 0;
    for (uint8_t c = 0; c < kChildren; ++c) seconds += Aggregator::host().RunQuick(aggregator.FromChild(c, seq).Build()).ns * 1e-9;
    state.SetIterationTime(seconds / kChildren);
    ++seq;
  }
}

/// What a rank does for a packet whose words it has: header, check word, tag.
void Seal(benchmark::State& state) {
  const auto key = std::make_shared<const mlnet_key>(kKey);
  const wire::Signer signer(key, WorkerIp(0).bytes, AggregatorIp().bytes);
  const std::vector<uint64_t> words = Payload(0, kBlocks);
  std::vector<std::byte> out(wire::PacketBytes(words.size(), &signer));
  mlnet_hdr header{};
  header.words = static_cast<uint16_t>(words.size());
  for (auto _ : state) {
    ++header.seq_lo;
    wire::Seal(header, words, mlnet_trailer{}, out, state.range(0) != 0 ? &signer : nullptr);
    benchmark::DoNotOptimize(out.data());
  }
}

BENCHMARK(AdmitAndVerify)->ArgName("mac")->Arg(0)->Arg(1)->UseManualTime()->Iterations(kRuns);
BENCHMARK(OldEpoch)->ArgName("mac")->Arg(0)->Arg(1)->UseManualTime()->Iterations(kRuns);
BENCHMARK(Forged)->ArgName("mac")->Arg(0)->Arg(1)->UseManualTime()->Iterations(kRuns);
BENCHMARK(Sum)->ArgName("mac")->Arg(0)->Arg(1)->UseManualTime()->Iterations(kRuns);
BENCHMARK(Seal)->ArgName("mac")->Arg(0)->Arg(1);

}  // namespace
}  // namespace mlnet::test
