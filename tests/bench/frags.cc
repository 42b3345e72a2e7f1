// SPDX-License-Identifier: Apache-2.0
// Whether packets in fragments (XDP multi-buffer, an MTU of 9000) would pay: a last contribution's work on its payload where it lies, as
// the product does it up to a page, beside the same over a copy, which is all that fragments allow. Needs CAP_BPF.
#include <benchmark/benchmark.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "compare.h"
#include "frags.h"
#include "frags.skel.h"

namespace mlnet::bench {
namespace {

constexpr int kPackets = 512;  // of an iteration

frags& Programs() {
  static const std::unique_ptr<frags, void (*)(frags*)> programs(frags::open_and_load(), frags::destroy);
  if (programs == nullptr) throw std::runtime_error("cannot load frags.bpf.o");
  return *programs;
}

// Of one packet.
double Nanoseconds(const bpf_program* program, std::vector<uint8_t>& payload) {
  bpf_test_run_opts opts{};
  opts.sz = sizeof(opts);
  opts.data_in = payload.data();
  opts.data_size_in = static_cast<uint32_t>(payload.size());
  opts.repeat = kPackets;
  if (bpf_prog_test_run_opts(bpf_program__fd(program), &opts) != 0) throw std::runtime_error(strerror(errno));
  if (opts.retval != XDP_DROP) throw std::runtime_error("the program gave up");
  return opts.duration;
}

void Run(benchmark::State& state, const bpf_program* program) {
  std::vector<uint8_t> payload(static_cast<size_t>(state.range(0)), 3);
  UserSpace user(payload.size() / sizeof(uint64_t), FRAGS_SLOTS);
  std::vector<double> ns, add_ns;
  for (auto _ : state) {
    ns.push_back(Nanoseconds(program, payload));
    add_ns.push_back(user.AddSeconds() * 1e9);
    state.SetIterationTime(ns.back() * kPackets * 1e-9);
  }
  state.counters["ns"] = MedianOf(ns);
  state.counters["add_ns"] = MedianOf(add_ns);
  state.counters["x_add"] = MedianOf(ns) / MedianOf(add_ns);
  state.counters["Gbps"] = static_cast<double>(payload.size()) * 8 / MedianOf(ns);
}

void WhereItLies(benchmark::State& state) { Run(state, Programs().progs.frags_direct); }
void Copied(benchmark::State& state) { Run(state, Programs().progs.frags_copied); }

// Payloads at an MTU of 1500, at the most that a page holds, and at 9000.
BENCHMARK(WhereItLies)->ArgName("bytes")->Arg(1408)->Arg(2816)->UseManualTime();
BENCHMARK(Copied)->ArgName("bytes")->Arg(1408)->Arg(2816)->Arg(FRAGS_BLOCKS * FRAGS_BLOCK_BYTES)->UseManualTime();

}  // namespace
}  // namespace mlnet::bench
