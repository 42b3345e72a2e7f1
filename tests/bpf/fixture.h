// SPDX-License-Identifier: Apache-2.0
// One aggregator host with one job of three workers on three hosts, P = 4 slots; and one worker host.
#pragma once

#include <gtest/gtest.h>

#include "harness/bpf_host.h"
#include "wire/verdicts.h"

namespace mlnet::test {

inline constexpr uint16_t kJob = 7;
inline constexpr uint8_t kChildren = 3;
inline constexpr uint64_t kSlots = 4;

inline Mac WorkerMac(uint8_t child) { return {0x02, 0, 0, 0, 0, static_cast<uint8_t>(child + 1)}; }
inline Address WorkerIp(uint8_t child) { return Ip("192.0.2." + std::to_string(child + 1)); }
inline Address AggregatorIp() { return Ip("192.0.2.100"); }
inline Address GroupIp() { return Ip("239.77.1.7"); }
inline const Mac kAggregatorMac{0x02, 0, 0, 0, 0, 0xa0};
inline const Mac kGroupMac = IsIpv6Run() ? Mac{0x33, 0x33, 0xef, 0x4d, 0x01, 0x07} : Mac{0x01, 0x00, 0x5e, 0x4d, 0x01, 0x07};

inline JobSpec Job(uint8_t flags) {
  JobSpec spec;
  spec.job = kJob;
  spec.flags = flags;
  for (uint8_t c = 0; c < kChildren; ++c) spec.child_addr.push_back(WorkerIp(c));
  spec.aggregator = AggregatorIp();
  spec.group = GroupIp();
  spec.open_pools = {0, 1};
  return spec;
}

/// `blocks` blocks of words that differ between children and positions.
inline std::vector<uint64_t> Payload(uint8_t child, size_t blocks, uint64_t salt = 0) {
  std::vector<uint64_t> words(blocks * MLNET_BLOCK_WORDS);
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = 0x0102030405060708ULL * (child + 1) + i * 0x1000100010001ULL + salt;
  return words;
}

inline Frame Contribution(uint8_t child, uint64_t seq, size_t blocks = 11) {
  Frame f;
  f.job = kJob;
  f.child = child;
  f.seq = seq;
  f.src_mac = WorkerMac(child);
  f.dst_mac = kAggregatorMac;
  f.saddr = WorkerIp(child);
  f.daddr = AggregatorIp();
  f.Words(Payload(child, blocks, seq));
  return f;
}

class AggregatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    host_ = BpfHost::Create();
    ASSERT_NE(host_, nullptr);
    host_->SetJob(Job(MLNET_NODE_AGGREGATE | MLNET_NODE_MULTICAST));
  }

  void Expect(const RunResult& run, mlnet_verdict verdict, int action) {
    ASSERT_TRUE(run.verdict.has_value());
    EXPECT_STREQ(wire::VerdictOf(*run.verdict).name, wire::VerdictOf(verdict).name);
    EXPECT_EQ(run.action, action);
  }

  /// All children contribute to `seq`; returns the completing run.
  RunResult Complete(uint64_t seq, size_t blocks = 11) {
    RunResult last;
    for (uint8_t c = 0; c < kChildren; ++c) last = host_->Run(Contribution(c, seq, blocks));
    return last;
  }

  std::unique_ptr<BpfHost> host_;
};

}  // namespace mlnet::test
