// SPDX-License-Identifier: Apache-2.0
#include "packets.h"

#include <bpf/libbpf.h>

#include <cstring>
#include <stdexcept>

#include "mlnet/config.h"  // the skeleton names its struct
#include "step.skel.h"

namespace mlnet::bench {
namespace {

enum Program : uint32_t { kIngress, kEmpty };
constexpr size_t kHeaderAt = 42, kPayloadAt = 64;

template <typename T>
uint64_t Load(const test::Bytes& bytes, size_t at) {
  T value;
  std::memcpy(&value, &bytes[at], sizeof(value));
  return value;
}

uint64_t Load48(const test::Bytes& bytes, size_t at) {
  return Load<uint32_t>(bytes, at) | Load<uint16_t>(bytes, at + 4) << 32;
}

// All of `frame` but what depends on the payload.
bench_step StepOf(const test::Bytes& frame, uint64_t seq, uint32_t slots, uint32_t children) {
  const size_t trailer = frame.size() - sizeof(mlnet_trailer);
  bench_step step{};
  constexpr size_t kFront[] = {0, 6, 14, 22, 30};
  for (size_t i = 0; i < std::size(kFront); ++i) step.front[i] = Load<uint64_t>(frame, kFront[i]);
  step.udp_rest = Load<uint32_t>(frame, 38);
  step.h0 = Load<uint64_t>(frame, kHeaderAt);
  step.h1 = Load<uint64_t>(frame, kHeaderAt + 8) & 0xffffffff;
  step.h2 = Load48(frame, kHeaderAt + 16) & ~uint64_t{0xffff};
  step.bitmap = Load<uint64_t>(frame, trailer + 8);
  step.weight = Load<uint32_t>(frame, trailer + 16);
  step.e0 = Load<uint64_t>(frame, trailer + 20);
  step.e1 = Load<uint64_t>(frame, trailer + 28);
  step.e2 = Load48(frame, trailer + 36);
  step.base = seq;
  step.slots = slots;
  step.children = children;
  step.trailer_at = static_cast<uint32_t>(trailer);
  return step;
}

}  // namespace

Packets& Packets::Get() {
  static Packets packets;
  return packets;
}

Packets::Packets() : host_(test::BpfHost::Create()), skeleton_(step::open_and_load()) {
  if (host_ == nullptr || skeleton_ == nullptr) throw std::runtime_error("cannot load the programs (root or CAP_BPF needed)");
  const int programs[] = {host_->IngressFd(), EmptyFd()};
  for (uint32_t i = 0; i < std::size(programs); ++i) {
    if (bpf_map_update_elem(bpf_map__fd(skeleton_->maps.bench_programs), &i, &programs[i], BPF_ANY) != 0) {
      throw std::runtime_error("the stepper cannot call the program under test");
    }
  }
}

std::pair<uint16_t, uint16_t> Packets::NewEpoch(uint8_t flags, uint8_t log2_slots) {
  const auto next_job = static_cast<uint16_t>(used_.size() + 1);
  Used& used = used_.try_emplace({flags, log2_slots}, Used{next_job, 0}).first->second;
  return {used.job, ++used.epoch};
}

int Packets::EmptyFd() const { return bpf_program__fd(skeleton_->progs.bench_empty); }
int Packets::EmptyTcFd() const { return bpf_program__fd(skeleton_->progs.bench_empty_tc); }

double Packets::Repeat(int program, const test::Bytes& frame, uint32_t count) {
  bpf_test_run_opts opts{};
  opts.sz = sizeof(opts);
  opts.data_in = frame.data();
  opts.data_size_in = static_cast<uint32_t>(frame.size());
  opts.repeat = static_cast<int>(count);
  if (bpf_prog_test_run_opts(program, &opts) != 0) throw std::runtime_error(strerror(errno));
  return opts.duration;
}

double Packets::RunSteps(const test::Bytes& frame, const bench_step& step, uint32_t count) {
  const uint32_t zero = 0;
  if (bpf_map_update_elem(bpf_map__fd(skeleton_->maps.bench_steps), &zero, &step, BPF_ANY) != 0) {
    throw std::runtime_error(strerror(errno));
  }
  return Repeat(bpf_program__fd(skeleton_->progs.bench_next), frame, count);
}

double Packets::RunRounds(const test::Frame& like, uint32_t slots, uint32_t children, uint32_t rounds) {
  const test::Bytes frame = like.Build();
  bench_step step = StepOf(frame, like.seq, slots, children);
  step.program = kIngress;
  return RunSteps(frame, step, slots * children * rounds);
}

double Packets::RunEmpty(const test::Frame& like, uint32_t count) {
  const test::Bytes frame = like.Build();
  bench_step step = StepOf(frame, like.seq, count, 1);
  step.program = kEmpty;
  return RunSteps(frame, step, count);
}

}  // namespace mlnet::bench
