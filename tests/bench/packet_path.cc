// SPDX-License-Identifier: Apache-2.0
// The packet path alone: nanoseconds per packet of each way through it, beside a user-space add of the same bytes that is
// timed in between. README.md says what these figures are and what they are not.
#include <benchmark/benchmark.h>
#include <linux/bpf.h>

#include <functional>
#include <string>
#include <tuple>

#include "compare.h"
#include "packets.h"
#include "wire/verdicts.h"

namespace mlnet::bench {
namespace {

using test::Frame;
using test::JobSpec;

constexpr uint8_t kRanks = 8;
constexpr uint8_t kFullBlocks = MLNET_BLOCKS_MTU1500;
enum Way { kFirst, kMiddle, kLast };

/// The samples of one benchmark: each the stage, the packets without it, and user space, one after the other.
class Samples {
 public:
  Samples(benchmark::State& state, size_t blocks, uint32_t packets)
      : state_(state), payload_bytes_(blocks * MLNET_BLOCK_BYTES), packets_(packets), user_(blocks * MLNET_BLOCK_WORDS, packets) {}

  /// The stage alone, of `packets` packets: what the stepper took for them is taken away.
  double Measure(const Frame& like) const {
    Packets& packets = Packets::Get();
    const double whole = packets.Run(like, packets_);
    return whole - packets.RunEmpty(like, packets_);
  }
  void Take(double ns) {
    ns_.push_back(ns);
    state_.SetIterationTime(std::max(ns, 0.0) * 1e-9 * packets_);
    if (payload_bytes_ == 0) return;
    add_ns_.push_back(user_.AddSeconds() * 1e9);
    copy_ns_.push_back(user_.CopySeconds() * 1e9);
  }
  /// Medians over the iterations: a stolen time slice in one of them does not show.
  void Report() {
    const double ns = MedianOf(ns_);
    state_.counters["ns"] = ns;
    if (payload_bytes_ == 0) return;
    state_.counters["add_ns"] = MedianOf(add_ns_);
    state_.counters["copy_ns"] = MedianOf(copy_ns_);
    state_.counters["x_add"] = ns / MedianOf(add_ns_);
    state_.counters["Gbps"] = static_cast<double>(payload_bytes_) * 8 / ns;
  }

 private:
  benchmark::State& state_;
  const size_t payload_bytes_;
  const uint32_t packets_;
  UserSpace user_;
  std::vector<double> ns_, add_ns_, copy_ns_;
};

/// Whether every packet since then ended as it should; a benchmark of something else is worth nothing.
class Ends {
 public:
  Ends(uint16_t job, mlnet_verdict verdict) : job_(job), verdict_(verdict), before_(Count()) {}
  bool Grew(uint64_t by, benchmark::State& state) const {
    if (Count() - before_ == by) return true;
    state.SkipWithError((std::string("not every packet ended in ") + wire::VerdictOf(verdict_).name).c_str());
    return false;
  }

 private:
  uint64_t Count() const { return Packets::Get().host().Stats(job_).verdicts[verdict_]; }
  uint16_t job_;
  mlnet_verdict verdict_;
  uint64_t before_;
};

JobSpec Aggregator(uint8_t flags, uint8_t log2_slots) {
  JobSpec spec = test::Job(MLNET_NODE_AGGREGATE | flags);
  std::tie(spec.job, spec.epoch) = Packets::Get().NewEpoch(flags, log2_slots);
  spec.child_addr.clear();
  for (uint8_t c = 0; c < kRanks; ++c) spec.child_addr.push_back(test::WorkerIp(c));
  spec.log2_slots = log2_slots;
  return spec;
}

struct Kind {
  const char* name;
  uint8_t op;
  uint8_t wire;
};
constexpr Kind kKinds[] = {{"int32", MLNET_OP_ADD64, MLNET_WIRE_BIASED32},
                           {"int16", MLNET_OP_ADD64, MLNET_WIRE_BIASED16},
                           {"int8", MLNET_OP_ADD64, MLNET_WIRE_BIASED8},
                           {"plain_int32", MLNET_OP_ADD32, MLNET_WIRE_INT32},
                           {"probe", MLNET_OP_MAX8, MLNET_WIRE_EXPS}};

Frame FromChild(const JobSpec& spec, uint8_t child, uint64_t seq, size_t blocks, Kind kind = kKinds[0]) {
  Frame f = test::Contribution(child, seq, blocks);
  f.job = spec.job;
  f.epoch = spec.epoch;
  f.op = kind.op;
  f.wire = kind.wire;
  return f;
}

/// Memory that a machine has never touched may take its host a page fault. Both sets of all slots; returns the next seq.
uint64_t WarmUp(const JobSpec& spec) {
  const uint32_t slots = 1U << spec.log2_slots;
  Packets::Get().RunRounds(FromChild(spec, 0, 0, kFullBlocks), slots, kRanks, 2);
  return 2 * slots;
}

mlnet_verdict EndOf(Way way, uint8_t flags) {
  if (way == kFirst) return MLNET_V_SUM_FIRST;
  if (way == kMiddle) return MLNET_V_SUM_ADD;
  if ((flags & MLNET_NODE_INNER) != 0) return MLNET_V_PARTIAL_TX;
  return (flags & MLNET_NODE_MULTICAST) != 0 ? MLNET_V_SUM_COMPLETE_TX : MLNET_V_SUM_COMPLETE_FAN;
}

Way WayOf(uint8_t child) { return child == 0 ? kFirst : child == kRanks - 1 ? kLast : kMiddle; }

/// One pool of sums after the other, all its slots by one child before the next; measured is `way`.
void Contributions(benchmark::State& state, Way way, Kind kind, uint8_t flags) {
  const auto blocks = static_cast<size_t>(state.range(0));
  const auto log2_slots = static_cast<uint8_t>(state.range(1));
  const uint32_t slots = 1U << log2_slots;
  const JobSpec spec = Aggregator(flags, log2_slots);
  Packets::Get().host().SetJob(spec);
  Samples samples(state, blocks, slots);
  uint64_t seq = WarmUp(spec);
  for (auto _ : state) {
    double sum = 0;
    int measured = 0;
    for (uint8_t c = 0; c < kRanks; ++c) {
      const Frame f = FromChild(spec, c, seq, blocks, kind);
      const Ends ends(spec.job, EndOf(WayOf(c), flags));
      if (way == WayOf(c)) {
        sum += samples.Measure(f);
        ++measured;
      } else {
        Packets::Get().Run(f, slots);
      }
      if (!ends.Grew(slots, state)) return;
    }
    samples.Take(sum / measured);
    seq += slots;
  }
  samples.Report();
}

/// Whole sums without a pause, first, middle and last packets in the shares that they have with kRanks children.
void WholeSums(benchmark::State& state, Kind kind) {
  const auto blocks = static_cast<size_t>(state.range(0));
  const auto log2_slots = static_cast<uint8_t>(state.range(1));
  const uint32_t slots = 1U << log2_slots, rounds = std::max(1U, 512U >> log2_slots), packets = slots * kRanks * rounds;
  const JobSpec spec = Aggregator(MLNET_NODE_MULTICAST, log2_slots);
  Packets::Get().host().SetJob(spec);
  Samples samples(state, blocks, slots);
  uint64_t seq = WarmUp(spec);
  for (auto _ : state) {
    const Frame f = FromChild(spec, 0, seq, blocks, kind);
    const Ends ends(spec.job, MLNET_V_SUM_COMPLETE_TX);
    const double whole = Packets::Get().RunRounds(f, slots, kRanks, rounds);
    samples.Take(whole - Packets::Get().RunEmpty(f, packets));
    if (!ends.Grew(slots * rounds, state)) return;
    seq += slots * rounds;
  }
  samples.Report();
}

/// Everybody has sent `seq` to `seq + slots - 1`.
void Fill(const JobSpec& spec, uint64_t seq, uint8_t children = kRanks) {
  for (uint8_t c = 0; c < children; ++c) Packets::Get().Run(FromChild(spec, c, seq, kFullBlocks), 1U << spec.log2_slots);
}

/// Packets that all end the same: `make` says which, `before` what each pool of them needs.
void Same(benchmark::State& state, const JobSpec& spec, mlnet_verdict verdict, size_t blocks,
          const std::function<void(uint64_t seq)>& before, const std::function<Frame(uint64_t seq)>& make) {
  const uint32_t slots = 1U << spec.log2_slots;
  const uint16_t counted = verdict == MLNET_V_DROP_UNKNOWN_JOB ? 0 : spec.job;
  Packets::Get().host().SetJob(spec);
  Samples samples(state, blocks, slots);
  uint64_t seq = 0;
  for (auto _ : state) {
    before(seq);
    const Ends ends(counted, verdict);
    samples.Take(samples.Measure(make(seq)));
    if (!ends.Grew(slots, state)) return;
    seq += slots;
  }
  samples.Report();
}

constexpr uint8_t kLog2Slots = 8;

void FromShadowCopy(benchmark::State& state) {
  const JobSpec spec = Aggregator(MLNET_NODE_MULTICAST, kLog2Slots);
  Same(state, spec, MLNET_V_RESEND_RESULT, kFullBlocks, [&](uint64_t seq) { Fill(spec, seq); },
       [&](uint64_t seq) {
         Frame f = FromChild(spec, 3, seq, kFullBlocks);
         f.flags = MLNET_F_RETRY;
         return f;
       });
}

void Held(benchmark::State& state) {
  const JobSpec spec = Aggregator(MLNET_NODE_MULTICAST, kLog2Slots);
  Same(state, spec, MLNET_V_HELD, 0,
       [&](uint64_t seq) {
         if (seq == 0) Fill(spec, 0, 1);
       },
       [&](uint64_t) { return FromChild(spec, 0, 0, kFullBlocks).HeaderOnly(kFullBlocks * MLNET_BLOCK_WORDS); });
}

void Busy(benchmark::State& state) {
  const JobSpec spec = Aggregator(MLNET_NODE_MULTICAST, kLog2Slots);
  Same(state, spec, MLNET_V_BUSY, 0, [](uint64_t) {},
       [&](uint64_t seq) { return FromChild(spec, 0, seq + 4096, kFullBlocks).HeaderOnly(kFullBlocks * MLNET_BLOCK_WORDS); });
}

JobSpec OfRanks() {
  JobSpec spec = Aggregator(MLNET_NODE_DELIVER, kLog2Slots);
  spec.local_children = {1, 2};
  return spec;
}

Frame ResultFor(const JobSpec& spec, uint64_t seq, const test::Address& from) {
  Frame f = FromChild(spec, 0, seq, kFullBlocks);
  f.type = MLNET_T_RESULT;
  f.child = MLNET_CHILD_ALL;
  f.saddr = from;
  f.weight = kRanks;
  return f;
}

void Deliver(benchmark::State& state) {
  const JobSpec spec = OfRanks();
  const uint32_t cells = 2U << kLog2Slots;
  Same(state, spec, MLNET_V_DELIVERED, kFullBlocks,
       [&](uint64_t seq) {
         if (seq == 0) Packets::Get().Run(ResultFor(spec, 0, test::AggregatorIp()), cells);
       },
       [&](uint64_t seq) { return ResultFor(spec, cells + seq, test::AggregatorIp()); });
}

JobSpec Inner() {
  JobSpec spec = Aggregator(MLNET_NODE_INNER, kLog2Slots);
  spec.up = spec.root = test::Ip("192.0.2.200");
  spec.up_mac = {2, 0, 0, 0, 0, 0xb0};
  return spec;
}

void ForwardDown(benchmark::State& state) {
  const JobSpec spec = Inner();
  Same(state, spec, MLNET_V_RESULT_DOWN_FAN, kFullBlocks, [&](uint64_t seq) { Fill(spec, seq); },
       [&](uint64_t seq) { return ResultFor(spec, seq, spec.up); });
}

/// A packet that is not admitted, of full length.
void Refused(benchmark::State& state, mlnet_verdict verdict, void (*spoil)(Frame&)) {
  const JobSpec spec = Aggregator(MLNET_NODE_MULTICAST, kLog2Slots);
  Same(state, spec, verdict, kFullBlocks, [](uint64_t) {},
       [&](uint64_t seq) {
         Frame f = FromChild(spec, 0, seq, kFullBlocks);
         spoil(f);
         return f;
       });
}

/// A frame that is the same each time, since it leaves nothing behind but a count.
void SameFrame(benchmark::State& state, uint16_t job, mlnet_verdict verdict, const test::Bytes& frame) {
  Packets& packets = Packets::Get();
  constexpr uint32_t kPackets = 1000;
  Samples samples(state, 0, kPackets);
  const Ends ends(job, verdict);
  for (auto _ : state) {
    const double whole = packets.Repeat(packets.IngressFd(), frame, kPackets);
    samples.Take(whole - packets.Repeat(packets.EmptyFd(), frame, kPackets));
  }
  if (ends.Grew(state.iterations() * kPackets, state)) samples.Report();
}

/// Another service's datagram of the same size: what every packet of a host pays.
void Foreign(benchmark::State& state) {
  Frame f = test::Contribution(0, 0, kFullBlocks);
  f.dst_port = 443;
  SameFrame(state, 0, MLNET_V_PASS_NOT_OURS, f.Build());
}

void Corrupt(benchmark::State& state) {
  const JobSpec spec = Aggregator(MLNET_NODE_MULTICAST, kLog2Slots);
  Packets::Get().host().SetJob(spec);
  test::Bytes frame = FromChild(spec, 0, 0, kFullBlocks).Build();
  frame[700] ^= 1;
  SameFrame(state, spec.job, MLNET_V_DROP_CORRUPT, frame);
}

void Register() {
  const char* ways[] = {"First", "Middle", "Last"};
  const auto add = [](const std::string& name, auto run, std::vector<std::vector<int64_t>> arguments) {
    auto* made = benchmark::RegisterBenchmark(name.c_str(), run)->ArgNames({"blocks", "log2_slots"})->UseManualTime();
    for (const auto& one : arguments) made->Args(one);
  };
  for (const Kind& kind : kKinds) {
    add(std::string("WholeSums/") + kind.name, [kind](benchmark::State& s) { WholeSums(s, kind); },
        {{kFullBlocks, 4}, {kFullBlocks, 8}, {1, 8}});
    for (const Way way : {kFirst, kMiddle, kLast}) {
      add(std::string("Contribution") + ways[way] + "/" + kind.name,
          [way, kind](benchmark::State& s) { Contributions(s, way, kind, MLNET_NODE_MULTICAST); }, {{kFullBlocks, 8}, {1, 8}});
    }
  }
  add("WholeSums/int32", [](benchmark::State& s) { WholeSums(s, kKinds[0]); }, {{kFullBlocks, 11}});
  add("ContributionLast/int32/copies", [](benchmark::State& s) { Contributions(s, kLast, kKinds[0], 0); }, {{kFullBlocks, 8}});
  add("ContributionLast/int32/partial", [](benchmark::State& s) { Contributions(s, kLast, kKinds[0], MLNET_NODE_INNER); },
      {{kFullBlocks, 8}});
}
const bool kIsRegistered = (Register(), true);

BENCHMARK(FromShadowCopy)->UseManualTime();
BENCHMARK(Held)->UseManualTime();
BENCHMARK(Busy)->UseManualTime();
BENCHMARK(Deliver)->UseManualTime();
BENCHMARK(ForwardDown)->UseManualTime();
BENCHMARK(Foreign)->UseManualTime();
BENCHMARK_CAPTURE(Refused, unknown_job, MLNET_V_DROP_UNKNOWN_JOB, [](Frame& f) { f.job = 60000; })->UseManualTime();
BENCHMARK_CAPTURE(Refused, old_epoch, MLNET_V_DROP_EPOCH, [](Frame& f) { ++f.epoch; })->UseManualTime();
BENCHMARK_CAPTURE(Refused, other_address, MLNET_V_DROP_NOT_MEMBER, [](Frame& f) { f.saddr = test::WorkerIp(1); })->UseManualTime();
BENCHMARK(Corrupt)->UseManualTime();

}  // namespace
}  // namespace mlnet::bench
