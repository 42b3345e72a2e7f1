// SPDX-License-Identifier: Apache-2.0
// Many packets through a kernel program in one system call: step.bpf.c makes each of the one before.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "bpf/fixture.h"
#include "step.h"

struct step;  // the skeleton

namespace mlnet::bench {

/// One host with the product's programs and the stepper. Loading takes seconds: one for all benchmarks.
class Packets {
 public:
  static Packets& Get();

  test::BpfHost& host() { return *host_; }
  /// Job and epoch for a node of these flags: sets of another epoch are empty, and their memory is there already.
  std::pair<uint16_t, uint16_t> NewEpoch(uint8_t flags, uint8_t log2_slots);

  /// Nanoseconds per packet of `count` packets: `like`, with seq growing by one from like.seq.
  double Run(const test::Frame& like, uint32_t count) { return RunRounds(like, count, 1, 1); }
  /// Of `rounds` sums in each of `slots`, by `children` one after the other, of which `like` is the first's first packet.
  double RunRounds(const test::Frame& like, uint32_t slots, uint32_t children, uint32_t rounds);
  /// The same packets made, and none looked at.
  double RunEmpty(const test::Frame& like, uint32_t count);
  /// The same frame each time, as it is, for what leaves it as it is.
  double Repeat(int program, const test::Bytes& frame, uint32_t count);
  int IngressFd() const { return host_->IngressFd(); }
  int EmptyFd() const;
  int EmptyTcFd() const;

 private:
  Packets();
  double RunSteps(const test::Bytes& frame, const struct bench_step& step, uint32_t count);

  std::unique_ptr<test::BpfHost> host_;
  step* skeleton_ = nullptr;
  struct Used {
    uint16_t job, epoch;
  };
  std::map<std::pair<uint8_t, uint8_t>, Used> used_;
};

}  // namespace mlnet::bench
