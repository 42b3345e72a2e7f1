// SPDX-License-Identifier: Apache-2.0
// Stages 3 to 5 of the packet path: contributions become one right result.
#include <cstring>
#include <numeric>

#include "bpf/fixture.h"

namespace mlnet::test {
namespace {

using SumTest = AggregatorTest;

std::vector<uint64_t> SumOfPayloads(uint64_t seq, size_t blocks) {
  std::vector<uint64_t> sum(blocks * MLNET_BLOCK_WORDS, 0);
  for (uint8_t c = 0; c < kChildren; ++c) {
    const auto words = Payload(c, blocks, seq);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += words[i];
  }
  return sum;
}

TEST_F(SumTest, last_contribution_becomes_the_multicast_result) {
  Expect(host_->Run(Contribution(2, 0)), MLNET_V_SUM_FIRST, XDP_DROP);
  Expect(host_->Run(Contribution(0, 0)), MLNET_V_SUM_ADD, XDP_DROP);
  const RunResult last = host_->Run(Contribution(1, 0));
  Expect(last, MLNET_V_SUM_COMPLETE_TX, XDP_TX);

  const Parsed result = ParseFrame(last.frame);
  EXPECT_EQ(result.frame.type, MLNET_T_RESULT);
  EXPECT_EQ(result.frame.words, SumOfPayloads(0, 11));
  EXPECT_EQ(result.frame.weight, 3);
  EXPECT_EQ(result.frame.bitmap, 0b111u);
  EXPECT_EQ(result.frame.child, MLNET_CHILD_ALL);
  EXPECT_EQ(result.frame.job, kJob);
  EXPECT_EQ(result.frame.fingerprint, 0x11223344u);
  EXPECT_TRUE(result.check_ok);
  EXPECT_TRUE(result.ip_checksum_ok);
  EXPECT_EQ(result.udp_checksum, 0);
  EXPECT_EQ(result.frame.saddr, AggregatorIp());
  EXPECT_EQ(result.frame.daddr, GroupIp());
  EXPECT_EQ(result.frame.src_mac, kAggregatorMac);
  EXPECT_EQ(result.frame.dst_mac, kGroupMac);
  EXPECT_EQ(result.frame.dst_port, MLNET_UDP_PORT);
  EXPECT_EQ(last.frame.size(), IsIpv6Run() ? 1534u : 1514u);

  const mlnet_stats stats = host_->Stats(kJob);
  EXPECT_EQ(stats.contributions, 3u);
  EXPECT_EQ(stats.results, 1u);
  EXPECT_EQ(stats.words_summed, 3u * 176);
}

TEST_F(SumTest, every_block_count_is_summed_whole) {
  for (size_t blocks = 0; blocks <= MLNET_BLOCKS_MAX; ++blocks) {
    const RunResult last = Complete(blocks, blocks);
    Expect(last, MLNET_V_SUM_COMPLETE_TX, XDP_TX);
    const Parsed result = ParseFrame(last.frame);
    EXPECT_EQ(result.frame.words, SumOfPayloads(blocks, blocks)) << blocks << " blocks";
    EXPECT_TRUE(result.check_ok);
  }
}

TEST_F(SumTest, add32_wraps_each_lane_on_its_own) {
  RunResult last;
  const uint64_t words[] = {0x80000000ffffffffULL, 0x7fffffff00000001ULL, 0x8000000180000000ULL};
  for (uint8_t c = 0; c < kChildren; ++c) {
    Frame f = Contribution(c, 0, 1);
    f.op = MLNET_OP_ADD32;
    f.wire = MLNET_WIRE_INT32;
    f.Words(std::vector<uint64_t>(16, words[c]));
    last = host_->Run(f);
  }
  // By hand: upper 0x80000000 + 0x7fffffff + 0x80000001 = 0x1_80000000 -> 0x80000000;
  // lower 0xffffffff + 0x00000001 + 0x80000000 = 0x1_80000000 -> 0x80000000.
  const Parsed result = ParseFrame(last.frame);
  EXPECT_EQ(result.frame.words, std::vector<uint64_t>(16, 0x8000000080000000ULL));
  EXPECT_TRUE(result.check_ok);
}

TEST_F(SumTest, max8_takes_the_larger_byte_and_recomputes_the_check_word) {
  RunResult last;
  const uint64_t words[] = {0x00ff7f80010203feULL, 0xff00807f020301fdULL, 0x7f7f7f7f030102ffULL};
  for (uint8_t c = 0; c < kChildren; ++c) {
    Frame f = Contribution(c, 0, 2);
    f.op = MLNET_OP_MAX8;
    f.wire = MLNET_WIRE_EXPS;
    f.Words(std::vector<uint64_t>(32, words[c]));
    last = host_->Run(f);
  }
  const Parsed result = ParseFrame(last.frame);
  EXPECT_EQ(result.frame.words, std::vector<uint64_t>(32, 0xffff8080030303ffULL));
  EXPECT_TRUE(result.check_ok);
}

// The three words of the children, and by hand what each operation makes of them, lane by lane.
TEST_F(SumTest, every_other_operation_works_on_its_own_lanes) {
  struct Case {
    mlnet_op op;
    uint64_t words[kChildren];
    uint64_t expected;
  };
  const Case cases[] = {
      {MLNET_OP_MAX16, {0x00ff7fff80000001, 0x01008000ffff0000, 0x00fe8001fffe0002}, 0x01008001ffff0002},
      {MLNET_OP_MAX32, {0x00ffffff80000000, 0x010000007fffffff, 0x0000000180000001}, 0x0100000080000001},
      {MLNET_OP_MAX64, {0x7fffffffffffffff, 0x8000000000000000, 0x00000000ffffffff}, 0x8000000000000000},
      {MLNET_OP_XOR, {0xff00ff00ff00ff00, 0x0ff00ff00ff00ff0, 0x1000000000000001}, 0xe0f0f0f0f0f0f0f1},
  };
  uint64_t seq = 0;
  for (const Case& c : cases) {
    RunResult last;
    for (uint8_t child = 0; child < kChildren; ++child) {
      Frame f = Contribution(child, seq, 1);
      f.op = c.op;
      f.wire = MLNET_WIRE_KEYS;
      f.Words(std::vector<uint64_t>(16, c.words[child]));
      last = host_->Run(f);
    }
    const Parsed result = ParseFrame(last.frame);
    EXPECT_EQ(result.frame.words, std::vector<uint64_t>(16, c.expected)) << "operation " << c.op;
    EXPECT_TRUE(result.check_ok);
    ++seq;
  }
}

TEST_F(SumTest, exponents_of_float64_merge_as_16_bit_lanes) {
  RunResult last;
  const uint16_t exps[kChildren] = {0x01ff, 0x0200, 0x00ff};  // by bytes the maximum would be 0x02ff
  for (uint8_t c = 0; c < kChildren; ++c) {
    Frame f = Contribution(c, 0, 2);
    f.wire = MLNET_WIRE_FLOAT64;
    for (size_t i = 0; i < f.exps.size(); i += 2) std::memcpy(&f.exps[i], &exps[(c + i / 2) % kChildren], 2);
    last = host_->Run(f);
  }
  const Parsed result = ParseFrame(last.frame);
  for (size_t i = 0; i < result.frame.exps.size(); i += 2) {
    EXPECT_EQ(result.frame.exps[i], 0x00) << i;
    EXPECT_EQ(result.frame.exps[i + 1], 0x02) << i;
  }
  EXPECT_TRUE(result.check_ok);
}

TEST_F(SumTest, or_joins_bits) {
  RunResult last;
  for (uint8_t c = 0; c < kChildren; ++c) {
    Frame f = Contribution(c, 0, 1);
    f.op = MLNET_OP_OR;
    f.Words(std::vector<uint64_t>(16, 0x0100000000000010ULL << c));
    last = host_->Run(f);
  }
  EXPECT_EQ(ParseFrame(last.frame).frame.words, std::vector<uint64_t>(16, 0x0700000000000070ULL));
}

TEST_F(SumTest, exponents_merge_by_maximum_and_flags_by_or) {
  RunResult last;
  for (uint8_t c = 0; c < kChildren; ++c) {
    Frame f = Contribution(c, 0);
    for (size_t i = 0; i < f.exps.size(); ++i) f.exps[i] = static_cast<uint8_t>((i * 37 + c * 101) % 256);
    if (c == 1) f.flags = MLNET_F_NONFINITE;
    if (c == 2) f.flags = MLNET_F_RETRY;
    last = host_->Run(f);
  }
  const Parsed result = ParseFrame(last.frame);
  for (size_t i = 0; i < result.frame.exps.size(); ++i) {
    uint8_t expected = 0;
    for (size_t c = 0; c < kChildren; ++c)
      expected = std::max(expected, static_cast<uint8_t>((i * 37 + c * 101) % 256));
    EXPECT_EQ(result.frame.exps[i], expected) << i;
  }
  EXPECT_EQ(result.frame.flags, MLNET_F_NONFINITE);
  EXPECT_TRUE(result.check_ok);
}

TEST_F(SumTest, header_only_children_add_nothing_and_the_data_child_carries_the_sum) {
  Expect(host_->Run(Contribution(0, 0).HeaderOnly(176)), MLNET_V_SUM_FIRST, XDP_DROP);
  Frame none = Contribution(1, 0).HeaderOnly(176);
  none.flags |= MLNET_F_NO_DATA;
  none.weight = 0;
  Expect(host_->Run(none), MLNET_V_SUM_ADD, XDP_DROP);
  const RunResult last = host_->Run(Contribution(2, 0));
  Expect(last, MLNET_V_SUM_COMPLETE_TX, XDP_TX);
  EXPECT_EQ(ParseFrame(last.frame).frame.words, Payload(2, 11));
  EXPECT_EQ(ParseFrame(last.frame).frame.weight, 2);
}

TEST_F(SumTest, header_only_last_asks_for_a_packet_that_can_carry_the_sum) {
  auto none = [](uint8_t child) {
    Frame f = Contribution(child, 0).HeaderOnly(176);
    f.flags |= MLNET_F_NO_DATA;
    f.weight = 0;
    return f;
  };
  host_->Run(Contribution(0, 0));
  host_->Run(none(1));
  const RunResult asked = host_->Run(none(2));
  Expect(asked, MLNET_V_SUM_COMPLETE_UNSENT, XDP_TX);
  const Parsed ask = ParseFrame(asked.frame);
  EXPECT_EQ(ask.frame.type, MLNET_T_RESEND);
  EXPECT_EQ(ask.frame.child, 2);
  EXPECT_EQ(ask.frame.dst_mac, WorkerMac(2));
  EXPECT_EQ(ask.frame.daddr, WorkerIp(2));
  EXPECT_TRUE(ask.check_ok);

  // A padded retry, full length, carries it to everybody; its own words do not count.
  Frame padded = Contribution(2, 0);
  padded.flags = MLNET_F_NO_DATA | MLNET_F_RETRY;
  padded.weight = 0;
  const RunResult sent = host_->Run(padded);
  Expect(sent, MLNET_V_SUM_SENT_LATE, XDP_TX);
  EXPECT_EQ(ParseFrame(sent.frame).frame.words, Payload(0, 11));
  EXPECT_EQ(ParseFrame(sent.frame).frame.weight, 1);
  EXPECT_EQ(ParseFrame(sent.frame).frame.daddr, GroupIp());
  // From now on a retry is answered to its sender alone.
  const RunResult again = host_->Run(padded);
  Expect(again, MLNET_V_RESEND_RESULT, XDP_TX);
  EXPECT_EQ(ParseFrame(again.frame).frame.daddr, WorkerIp(2));
}

TEST_F(SumTest, nobody_with_data_sums_to_zero_not_to_what_the_slot_held_before) {
  for (uint64_t seq : {0, 4, 8}) {
    RunResult last;
    for (uint8_t c = 0; c < kChildren; ++c) {
      Frame f = Contribution(c, seq);
      if (seq == 8) f.flags = MLNET_F_NO_DATA;
      last = host_->Run(f);
    }
    if (seq == 8) {
      EXPECT_EQ(ParseFrame(last.frame).frame.words, std::vector<uint64_t>(176, 0));
      EXPECT_EQ(ParseFrame(last.frame).frame.weight, 0);
      EXPECT_TRUE(ParseFrame(last.frame).check_ok);
    }
  }
}

// Both sets of a slot in turn: with data twice, then without twice, in each operation.
TEST_F(SumTest, nobody_with_data_has_the_check_word_of_zeros_in_all_operations) {
  for (uint64_t turn = 0; turn < 4 * MLNET_OP_COUNT; ++turn) {
    const bool has_data = turn % 4 < 2;
    RunResult last;
    for (uint8_t c = 0; c < kChildren; ++c) {
      Frame f = Contribution(c, 4 * turn);
      f.op = static_cast<uint8_t>(turn / 4);
      if (!has_data) f.flags = MLNET_F_NO_DATA;
      last = host_->Run(f);
    }
    const Parsed result = ParseFrame(last.frame);
    EXPECT_TRUE(result.check_ok) << "turn " << turn;
    if (!has_data) {
      EXPECT_EQ(result.frame.words, std::vector<uint64_t>(176, 0)) << "turn " << turn;
    }
  }
}

TEST_F(SumTest, barrier_without_words_completes_header_only) {
  RunResult last;
  for (uint8_t c = 0; c < kChildren; ++c) last = host_->Run(Contribution(c, 0).HeaderOnly(0));
  Expect(last, MLNET_V_SUM_COMPLETE_TX, XDP_TX);
  EXPECT_EQ(ParseFrame(last.frame).frame.type, MLNET_T_RESULT);
}

TEST_F(SumTest, classes_have_slots_of_their_own) {
  host_->Run(Contribution(0, 0));
  Frame other = Contribution(1, 0);
  other.class_stream = 1;
  Expect(host_->Run(other), MLNET_V_SUM_FIRST, XDP_DROP);
  EXPECT_EQ(host_->Slot(kJob, 0, 0).set[0].contributed, 0b001u);
  EXPECT_EQ(host_->Slot(kJob, 1, 0).set[0].contributed, 0b010u);
}

TEST_F(SumTest, sixty_four_children_complete_once_all_are_in) {
  JobSpec spec = Job(MLNET_NODE_AGGREGATE | MLNET_NODE_MULTICAST);
  spec.job = 9;
  spec.child_addr.clear();
  for (uint8_t c = 0; c < 64; ++c) spec.child_addr.push_back(WorkerIp(c));
  host_->SetJob(spec);
  for (uint8_t c = 0; c < 64; ++c) {
    Frame f = Contribution(c, 0, 1);
    f.job = 9;
    f.Words(std::vector<uint64_t>(16, c + 1));
    const RunResult run = host_->Run(f);
    if (c == 63) {
      Expect(run, MLNET_V_SUM_COMPLETE_TX, XDP_TX);
      EXPECT_EQ(ParseFrame(run.frame).frame.words[5], 64u * 65 / 2);
      EXPECT_EQ(ParseFrame(run.frame).frame.bitmap, ~0ULL);
    } else {
      Expect(run, c == 0 ? MLNET_V_SUM_FIRST : MLNET_V_SUM_ADD, XDP_DROP);
    }
  }
}

TEST_F(SumTest, unicast_result_leaves_as_one_addressed_copy_per_host) {
  host_->SetJob(Job(MLNET_NODE_AGGREGATE));
  const RunResult last = Complete(0);
  Expect(last, MLNET_V_SUM_COMPLETE_FAN, XDP_REDIRECT);
  ASSERT_EQ(last.meta.size(), sizeof(mlnet_fan_meta));
  for (uint8_t k = 0; k < kChildren; ++k) {
    const RunResult copy = host_->RunEgress(last.meta, last.frame);
    EXPECT_EQ(copy.action, XDP_PASS);
    EXPECT_TRUE(copy.meta.empty()) << "the mark does not leave the host";
    const Parsed result = ParseFrame(copy.frame);
    EXPECT_EQ(result.frame.dst_mac, WorkerMac(k));
    EXPECT_EQ(result.frame.daddr, WorkerIp(k));
    EXPECT_EQ(result.frame.saddr, AggregatorIp());
    EXPECT_EQ(result.frame.words, SumOfPayloads(0, 11));
    EXPECT_TRUE(result.check_ok);
    EXPECT_TRUE(result.ip_checksum_ok);
  }
  EXPECT_EQ(host_->RunEgress(last.meta, last.frame).action, XDP_DROP) << "no host for a fourth copy";
  const RunResult next = Complete(1);
  EXPECT_EQ(ParseFrame(host_->RunEgress(next.meta, next.frame).frame).frame.daddr, WorkerIp(0))
      << "the next result starts at the first host again";
}

TEST_F(SumTest, frames_without_the_mark_pass_the_egress_program_unchanged) {
  const Bytes frame = Contribution(0, 0).Build();
  const RunResult run = host_->RunEgress({}, frame);
  EXPECT_EQ(run.action, XDP_PASS);
  EXPECT_EQ(run.frame, frame);
}

TEST_F(SumTest, ranks_of_one_host_get_one_copy) {
  JobSpec spec = Job(MLNET_NODE_AGGREGATE);
  spec.child_addr = {WorkerIp(0), WorkerIp(0), WorkerIp(0)};
  host_->SetJob(spec);
  RunResult last;
  for (uint8_t c = 0; c < kChildren; ++c) {
    Frame f = Contribution(c, 0);
    f.saddr = WorkerIp(0);
    f.src_mac = WorkerMac(0);
    last = host_->Run(f);
  }
  Expect(last, MLNET_V_SUM_COMPLETE_TX, XDP_TX);
  EXPECT_EQ(ParseFrame(last.frame).frame.daddr, WorkerIp(0));
  EXPECT_EQ(ParseFrame(last.frame).frame.dst_mac, WorkerMac(0));
}

}  // namespace
}  // namespace mlnet::test
