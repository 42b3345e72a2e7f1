// SPDX-License-Identifier: Apache-2.0
// Jobs whose packets carry a tag: it is looked at before a packet changes anything, and made anew for what leaves.
#include <cstring>
#include <random>

#include "bpf/mac_fixture.h"

namespace mlnet::test {
namespace {

class MacTest : public MacFixture {
 protected:
  /// Runs `bytes` with each bit from the mlnet header on flipped; nothing may come of any of them.
  void FlipEveryBit(const Bytes& bytes, bool has_inbox) {
    const Bytes before = State(has_inbox);
    std::map<mlnet_verdict, int> verdicts;
    for (size_t bit = HeaderAt(bytes) * 8; bit < bytes.size() * 8; ++bit) {
      Bytes flipped = bytes;
      flipped[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      const RunResult run = host_->Run(flipped);
      ASSERT_EQ(run.action, XDP_DROP) << "bit " << bit;
      ++verdicts[run.verdict.value()];
    }
    EXPECT_EQ(State(has_inbox), before);
    EXPECT_EQ(NumRecords(has_inbox), 0u);
    for (const auto& [verdict, count] : verdicts) {
      const std::string name = wire::VerdictOf(verdict).name;
      EXPECT_EQ(name.substr(0, 5), "DROP_") << name << ": " << count;
    }
    EXPECT_GE(verdicts[MLNET_V_DROP_MAC], 64) << "the tag's own bits, and what the check word does not see";
  }
};

// The first and last of the 64 vectors that the authors publish, key and input 00 01 02 ...
TEST(SipHashTest, official_vectors) {
  const std::map<size_t, uint64_t> vectors = {{0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd},  {7, 0xab0200f58b01d137},
                                              {8, 0x93f5f5799a932462}, {15, 0xa129ca6149be45e5}};
  const __u64 key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
  Bytes input;
  for (uint8_t i = 0; i < 16; ++i) input.push_back(i);
  for (const auto& [bytes, expected] : vectors) {
    EXPECT_EQ(ReferenceSip(key[0], key[1], std::span(input).first(bytes)), expected) << bytes;
    mlnet_sip s;
    mlnet_sip_begin(&s, key);
    size_t at = 0;
    for (; at + 8 <= bytes; at += 8) {
      uint64_t word;
      std::memcpy(&word, &input[at], 8);
      mlnet_sip_word(&s, word);
    }
    uint64_t last = uint64_t{bytes} << 56;
    for (size_t i = at; i < bytes; ++i) last |= uint64_t{input[i]} << 8 * (i - at);
    EXPECT_EQ(mlnet_sip_end(&s, last), expected) << bytes;
  }
}

TEST(NhTest, both_hashes_are_those_of_long_arithmetic) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 100; ++round) {
    std::vector<uint64_t> words(static_cast<size_t>(round) + 1);
    for (uint64_t& word : words) word = round % 3 == 0 ? ~0ULL : random();
    const mlnet_key key = TestKey(random());
    mlnet_nh nh{};
    for (size_t i = 0; i < words.size(); ++i) mlnet_nh_add(&nh, words[i], key.nh + i);
    EXPECT_EQ(nh.sum[0], ReferenceNh(words, key.nh));
    EXPECT_EQ(nh.sum[1], ReferenceNh(words, key.nh + 1));
  }
}

TEST_F(MacTest, tagged_contributions_are_summed_and_the_result_has_a_tag) {
  Root();
  for (const size_t blocks : {size_t{MLNET_BLOCKS_MAX}, size_t{11}, size_t{1}, size_t{0}}) {
    const uint64_t seq = blocks % kSlots;
    Expect(host_->Run(FromChild(0, seq, blocks)), MLNET_V_SUM_FIRST, XDP_DROP);
    Expect(host_->Run(FromChild(1, seq, blocks)), MLNET_V_SUM_ADD, XDP_DROP);
    const RunResult run = host_->Run(FromChild(2, seq, blocks));
    Expect(run, MLNET_V_SUM_COMPLETE_TX, XDP_TX);
    ExpectTag(run.frame);
    EXPECT_EQ(ParseFrame(run.frame).frame.daddr, GroupIp());
  }
}

TEST_F(MacTest, every_reply_has_a_tag) {
  Root();
  host_->Run(FromChild(0, 0));
  const auto expect = [&](const Frame& frame, mlnet_verdict verdict) {
    const RunResult run = host_->Run(frame);
    Expect(run, verdict, XDP_TX);
    ExpectTag(run.frame);
  };
  expect(FromChild(0, 0), MLNET_V_HELD);
  expect(FromChild(0, 2 * kSlots), MLNET_V_BUSY);
  Frame other = FromChild(1, 0);
  other.fingerprint = 1;
  expect(other, MLNET_V_MISMATCH);
  host_->TakeEvents();
  host_->Run(FromChild(1, 0));
  Frame short_one = FromChild(2, 0);
  short_one.flags = MLNET_F_NO_DATA;
  short_one.weight = 0;
  short_one.HeaderOnly(kBlocks * MLNET_BLOCK_WORDS);
  expect(short_one, MLNET_V_SUM_COMPLETE_UNSENT);
  expect(FromChild(1, 0), MLNET_V_SUM_SENT_LATE);
  expect(FromChild(1, 0), MLNET_V_RESEND_RESULT);
  expect(short_one, MLNET_V_ASK_RESEND);
  expect(Ping(1, 99), MLNET_V_PONG);
}

TEST_F(MacTest, each_copy_has_the_tag_of_its_own_address) {
  Root(0);
  for (uint8_t c = 0; c < kChildren; ++c) host_->SetLinkMac(kJob, c, WorkerMac(c));
  host_->Run(FromChild(0, 0));
  host_->Run(FromChild(1, 0));
  const RunResult run = host_->Run(FromChild(2, 0));
  Expect(run, MLNET_V_SUM_COMPLETE_FAN, XDP_REDIRECT);
  for (uint8_t c = 0; c < kChildren; ++c) {
    const RunResult copy = host_->RunEgress(run.meta, run.frame);
    ASSERT_EQ(copy.action, XDP_PASS);
    EXPECT_EQ(ParseFrame(copy.frame).frame.daddr, WorkerIp(c));
    ExpectTag(copy.frame);
  }
}

TEST_F(MacTest, a_partial_sum_goes_up_with_a_tag_and_so_does_a_ping) {
  Rack();
  host_->Run(FromChild(0, 0));
  host_->Run(FromChild(1, 0));
  const RunResult run = host_->Run(FromChild(2, 0));
  Expect(run, MLNET_V_PARTIAL_TX, XDP_TX);
  ExpectTag(run.frame);
  EXPECT_EQ(ParseFrame(run.frame).frame.child, 5);
  EXPECT_EQ(ParseFrame(run.frame).frame.daddr, ParentIp());
  const RunResult up = host_->Run(Ping(1, 99));
  Expect(up, MLNET_V_PING_UP_TX, XDP_TX);
  ExpectTag(up.frame);
  Frame pong = Pong(5, 0);
  pong.saddr = ParentIp();
  pong.daddr = AggregatorIp();
  pong.bitmap = ParseFrame(up.frame).frame.bitmap;
  const RunResult down = host_->Run(pong);
  Expect(down, MLNET_V_PONG_DOWN_TX, XDP_TX);
  ExpectTag(down.frame);
  EXPECT_EQ(ParseFrame(down.frame).frame.seq, 99u);
}

TEST_F(MacTest, what_has_no_tag_or_one_of_another_key_is_dropped) {
  Root();
  const Bytes before = State(false);
  Expect(host_->Run(Tagged(FromChild(0, 0), nullptr)), MLNET_V_DROP_MAC, XDP_DROP);
  Expect(host_->Run(Tagged(FromChild(0, 0), &kOtherKey)), MLNET_V_DROP_MAC, XDP_DROP);
  mlnet_key near = kKey;
  near.nh[MLNET_NH_TRAILER_WORDS + kBlocks * MLNET_BLOCK_WORDS] ^= 1;  // the last word of the second hash
  Expect(host_->Run(Tagged(FromChild(0, 0), &near)), MLNET_V_DROP_MAC, XDP_DROP);
  EXPECT_EQ(State(false), before);
  Expect(host_->Run(FromChild(0, 0)), MLNET_V_SUM_FIRST, XDP_DROP);
}

TEST_F(MacTest, a_job_without_a_key_takes_no_tags) {
  Root(MLNET_NODE_MULTICAST, nullptr);
  Expect(host_->Run(FromChild(0, 0)), MLNET_V_DROP_MALFORMED, XDP_DROP);
  Expect(host_->Run(Contribution(0, 0)), MLNET_V_SUM_FIRST, XDP_DROP);
}

TEST_F(MacTest, an_epoch_whose_key_is_gone_admits_nothing) {
  Root();
  JobSpec spec = Job(MLNET_NODE_AGGREGATE | MLNET_NODE_MAC);
  spec.epoch = 2;
  host_->SetJob(spec);
  Frame f = FromChild(0, 0);
  f.epoch = 2;
  Expect(host_->Run(f), MLNET_V_DROP_MAC, XDP_DROP);
}

TEST_F(MacTest, no_bit_of_a_contribution_can_change) {
  Root();
  host_->Run(FromChild(1, 0));
  FlipEveryBit(FromChild(0, 0).Build(), false);
}

TEST_F(MacTest, no_bit_of_a_result_or_a_reply_can_change) {
  Worker();
  FlipEveryBit(Result(0).Build(), true);
  for (const uint8_t type : {MLNET_T_HELD, MLNET_T_BUSY, MLNET_T_RESEND, MLNET_T_MISMATCH}) FlipEveryBit(Reply(type, 1).Build(), true);
  Expect(host_->Run(Result(0)), MLNET_V_DELIVERED, XDP_DROP);
  Expect(host_->Run(Reply(MLNET_T_HELD, 1)), MLNET_V_NOTICE, XDP_DROP);
}

TEST_F(MacTest, whoever_knows_everything_but_the_key_gets_nothing_in) {
  Root();
  host_->Run(FromChild(1, 0));
  const Bytes before = State(false);
  const Bytes seen = FromChild(0, 0).Build();
  for (size_t i = 0; i < kBlocks * MLNET_BLOCK_WORDS; ++i) {
    Frame f = FromChild(0, 0);
    f.words[i] += 0x10000;  // another gradient, with the check word that it must have
    f.key = nullptr;
    Bytes forged = f.Build();
    // Lengths and tag of what was seen on the wire.
    std::copy_n(&seen[14], HeaderAt(seen) - 14, &forged[14]);
    forged.insert(forged.end(), seen.end() - MLNET_MAC_BYTES, seen.end());
    Expect(host_->Run(forged), MLNET_V_DROP_MAC, XDP_DROP);
  }
  EXPECT_EQ(State(false), before);
}

TEST_F(MacTest, a_packet_of_another_hop_is_not_one_of_this) {
  Root();
  const Bytes before = State(false);
  Bytes replayed = FromChild(0, 0).Build();
  Frame elsewhere = FromChild(0, 0);
  elsewhere.daddr = ParentIp();  // child 0 of another node sent the same to that one
  const Bytes other = elsewhere.Build();
  std::copy(other.end() - MLNET_MAC_BYTES, other.end(), replayed.end() - MLNET_MAC_BYTES);
  Expect(host_->Run(replayed), MLNET_V_DROP_MAC, XDP_DROP);
  EXPECT_EQ(State(false), before);
}

TEST_F(MacTest, replays_end_where_late_packets_do) {
  Root();
  const Bytes first = FromChild(0, 0).Build();
  for (uint64_t seq = 0; seq <= 2 * kSlots; seq += kSlots) {
    for (uint8_t c = 0; c < kChildren; ++c) host_->Run(FromChild(c, seq));
  }
  Expect(host_->Run(first), MLNET_V_DROP_STALE, XDP_DROP);
  JobSpec next = Job(MLNET_NODE_AGGREGATE | MLNET_NODE_MULTICAST);
  next.epoch = 2;
  next.key = &kOtherKey;
  host_->SetJob(next);
  Expect(host_->Run(first), MLNET_V_DROP_EPOCH, XDP_DROP);
  Bytes moved = first;
  moved[HeaderAt(moved) + 4] = 2;  // the epoch that runs now
  EXPECT_EQ(host_->Run(moved).action, XDP_DROP);
}

TEST_F(MacTest, a_ping_that_is_repeated_keeps_nobody_alive) {
  for (const uint8_t flags : {uint8_t{MLNET_NODE_MULTICAST}, uint8_t{MLNET_NODE_INNER}}) {
    flags == MLNET_NODE_INNER ? Rack() : Root();
    const mlnet_verdict heard = flags == MLNET_NODE_INNER ? MLNET_V_PING_UP_TX : MLNET_V_PONG;
    const uint64_t first = flags * uint64_t{1000};
    Expect(host_->Run(Ping(0, first + 4)), heard, XDP_TX);
    Expect(host_->Run(Ping(0, first + 5)), heard, XDP_TX);
    const Bytes before = State(false);
    for (const uint64_t seq : {first + 5, first + 4, first + 1, uint64_t{0}}) {
      Frame again = Ping(0, seq);
      again.src_mac = WorkerMac(9);  // nor do results go to whoever repeats it
      Expect(host_->Run(again), MLNET_V_DROP_PING_OLD, XDP_DROP);
    }
    EXPECT_EQ(State(false), before);
    Expect(host_->Run(Ping(1, first + 1)), heard, XDP_TX);  // each child has a clock of its own
    Expect(host_->Run(Ping(0, first + 6)), heard, XDP_TX);
    EXPECT_NE(State(false), before);
  }
}

TEST_F(MacTest, an_answer_that_is_repeated_keeps_no_root_alive) {
  constexpr int64_t kMs = 1'000'000;
  for (const bool is_rack : {false, true}) {
    is_rack ? Rack() : Worker();
    const auto from_above = [&](int64_t age_ns) {
      Frame f = Pong(is_rack ? 5 : 1, age_ns);
      if (is_rack) f.saddr = ParentIp();
      if (is_rack) f.daddr = AggregatorIp();
      return f;
    };
    Expect(host_->Run(from_above(0)), MLNET_V_PONG_SEEN, XDP_DROP);
    Expect(host_->Run(from_above(500 * kMs)), MLNET_V_PONG_SEEN, XDP_DROP);
    for (const int64_t age_ns : {1'100 * kMs, 100'000 * kMs, -100 * kMs}) {
      Expect(host_->Run(from_above(age_ns)), MLNET_V_DROP_PING_OLD, XDP_DROP);
    }
  }
  Worker();
  Frame probe = Result(4711).HeaderOnly(0);
  probe.type = MLNET_T_PING;
  for (int i = 0; i < 2; ++i) Expect(host_->Run(probe), MLNET_V_PING_SEEN, XDP_DROP);  // counted apart: it may be an old one
}

TEST_F(MacTest, a_right_tag_does_not_outlive_its_packet) {
  Root();
  Frame old = FromChild(0, 0);
  old.epoch = 9;
  Frame unknown = FromChild(0, 0);
  unknown.job = 99;
  for (const Frame& last : {old, unknown}) {
    host_->LeaveTagRight();
    EXPECT_EQ(host_->Run(last).action, XDP_DROP);
    Expect(host_->Run(Tagged(FromChild(1, 0), &kOtherKey)), MLNET_V_DROP_MAC, XDP_DROP);
  }
}

TEST_F(MacTest, damage_is_still_told_from_forgery) {
  Root();
  Bytes damaged = FromChild(0, 0).Build();
  damaged[PayloadAt(damaged) + 3] ^= 4;
  Expect(host_->Run(damaged), MLNET_V_DROP_CORRUPT, XDP_DROP);
}

TEST_F(MacTest, a_member_is_held_to_its_own_address) {
  Root();
  Frame f = FromChild(0, 0);
  f.saddr = WorkerIp(1);
  Expect(host_->Run(f), MLNET_V_DROP_NOT_MEMBER, XDP_DROP);
}

}  // namespace
}  // namespace mlnet::test
