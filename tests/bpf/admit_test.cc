// SPDX-License-Identifier: Apache-2.0
// Stages 1 and 2, and rule 5's first half: what is not ours passes, what is not admitted or damaged
// changes nothing but a counter.
#include <random>

#include "bpf/fixture.h"

namespace mlnet::test {
namespace {

class AdmitTest : public AggregatorTest {
 protected:
  void ExpectNoTrace() {
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      EXPECT_EQ(host_->Slot(kJob, 0, slot).set[0].state, MLNET_SET_EMPTY);
      EXPECT_EQ(host_->Slot(kJob, 0, slot).set[1].state, MLNET_SET_EMPTY);
    }
    EXPECT_EQ(host_->Link(kJob, 0).mac, 0u);
    EXPECT_EQ(host_->Stats(kJob).contributions, 0u);
  }
};

TEST_F(AdmitTest, packets_of_others_pass_untouched) {
  Bytes arp = Contribution(0, 0).Build();
  arp[12] = 0x08, arp[13] = 0x06;
  Bytes tcp = Contribution(0, 0).Build();
  tcp[IsIpv6Run() ? 20 : 23] = 6;
  Bytes options = Contribution(0, 0).Build();  // IPv6: a hop-by-hop header
  if (IsIpv6Run()) options[20] = 0;
  else options[14] = 0x46;
  Frame dns = Contribution(0, 0);
  dns.dst_port = 53;
  Bytes tiny = Contribution(0, 0).Build();
  tiny.resize(20);
  for (const Bytes& frame : {arp, tcp, options, dns.Build(), tiny}) {
    const RunResult run = host_->Run(frame);
    Expect(run, MLNET_V_PASS_NOT_OURS, XDP_PASS);
    EXPECT_EQ(run.frame, frame);
  }
  ExpectNoTrace();
}

TEST_F(AdmitTest, each_wrong_field_has_its_verdict) {
  struct Case {
    const char* what;
    mlnet_verdict verdict;
    void (*change)(Frame&);
  };
  const Case cases[] = {
      {"version", MLNET_V_DROP_VERSION, [](Frame& f) { f.version = 2; }},
      {"job", MLNET_V_DROP_UNKNOWN_JOB, [](Frame& f) { f.job = kJob + 1; }},
      {"epoch ahead", MLNET_V_DROP_EPOCH, [](Frame& f) { f.epoch = 2; }},
      {"epoch behind", MLNET_V_DROP_EPOCH, [](Frame& f) { f.epoch = 0; }},
      {"tree", MLNET_V_DROP_NO_POOL, [](Frame& f) { f.tree = 1; }},
      {"class", MLNET_V_DROP_NO_POOL, [](Frame& f) { f.class_stream = 5; }},
      {"reserved class bits", MLNET_V_DROP_NO_POOL, [](Frame& f) { f.class_stream = 0x10; }},
      {"child of nobody", MLNET_V_DROP_NOT_MEMBER, [](Frame& f) { f.child = 3; }},
      {"child beyond the bitmap", MLNET_V_DROP_NOT_MEMBER, [](Frame& f) { f.child = 64; }},
      {"another child's address", MLNET_V_DROP_NOT_MEMBER, [](Frame& f) { f.saddr = WorkerIp(1); }},
      {"another destination", MLNET_V_DROP_UNKNOWN_JOB, [](Frame& f) { f.daddr = Ip("192.0.2.101"); }},
      {"type", MLNET_V_DROP_UNSUPPORTED, [](Frame& f) { f.type = 15; }},
      {"operation", MLNET_V_DROP_UNSUPPORTED, [](Frame& f) { f.op = 9; }},
      {"words not whole blocks", MLNET_V_DROP_MALFORMED, [](Frame& f) { f.nominal_words = 175; }},
      {"words of another size", MLNET_V_DROP_MALFORMED, [](Frame& f) { f.nominal_words = 160; }},
      {"words beyond the maximum", MLNET_V_DROP_MALFORMED, [](Frame& f) { f.Words(std::vector<uint64_t>(MLNET_WORDS_MAX + MLNET_BLOCK_WORDS)); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Frame f = Contribution(0, 0);
    c.change(f);
    Expect(host_->Run(f), c.verdict, XDP_DROP);
  }
  ExpectNoTrace();
}

TEST_F(AdmitTest, addresses_count_to_their_last_bit) {
  Frame f = Contribution(0, 0);
  for (size_t byte = IsIpv6Run() ? 0 : 12; byte < 16; ++byte) {
    f.saddr.bytes[byte] ^= 0x40;
    Expect(host_->Run(f), MLNET_V_DROP_NOT_MEMBER, XDP_DROP);
    f.saddr = WorkerIp(0);
    f.daddr.bytes[byte] ^= 0x01;
    Expect(host_->Run(f), MLNET_V_DROP_UNKNOWN_JOB, XDP_DROP);
    f.daddr = AggregatorIp();
  }
  ExpectNoTrace();
  Expect(host_->Run(f), MLNET_V_SUM_FIRST, XDP_DROP);
}

// IPv4 addresses are mapped in the job's entry, so an IPv6 host could have the same last word.
TEST_F(AdmitTest, a_job_has_one_family) {
  Frame f = Contribution(0, 0);
  for (Address* address : {&f.saddr, &f.daddr}) {
    std::fill_n(address->bytes.begin(), 10, 0);
    std::fill_n(address->bytes.begin() + 10, 2, IsIpv6Run() ? 0xff : 0xfe);
  }
  ASSERT_NE(f.saddr.IsIpv6(), WorkerIp(0).IsIpv6());
  Expect(host_->Run(f), MLNET_V_DROP_NOT_MEMBER, XDP_DROP);
  ExpectNoTrace();
}

TEST_F(AdmitTest, a_fragment_is_dropped_or_left_to_the_kernel) {
  Frame f = Contribution(0, 0);
  f.ip_frag_off = 0x2000;
  Bytes fragment = f.Build();
  if (IsIpv6Run()) fragment[20] = 44;  // a fragment header follows
  Expect(host_->Run(fragment), IsIpv6Run() ? MLNET_V_PASS_NOT_OURS : MLNET_V_DROP_FRAGMENT, IsIpv6Run() ? XDP_PASS : XDP_DROP);
  ExpectNoTrace();
}

TEST_F(AdmitTest, truncated_frames_are_dropped_by_name) {
  const Bytes whole = Contribution(0, 0).Build();
  for (size_t bytes : {PayloadAt(whole), PayloadAt(whole) + 41}) {
    Expect(host_->Run(Bytes(whole.begin(), whole.begin() + static_cast<long>(bytes))),
           MLNET_V_DROP_MALFORMED, XDP_DROP);
  }
  Expect(host_->Run(Bytes(whole.begin(), whole.end() - 1)), MLNET_V_DROP_FRAGMENT, XDP_DROP);
  ExpectNoTrace();
}

TEST_F(AdmitTest, a_flipped_bit_anywhere_never_reaches_a_sum) {
  const uint64_t seed = 20240607;
  std::mt19937_64 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Bytes whole = Contribution(0, 0).Build();
  std::vector<size_t> bits;
  const size_t header_at = HeaderAt(whole), payload_at = PayloadAt(whole);
  for (size_t bit = header_at * 8; bit < payload_at * 8; ++bit) bits.push_back(bit);
  for (size_t bit = (whole.size() - 42) * 8; bit < whole.size() * 8; ++bit) bits.push_back(bit);  // trailer
  for (int i = 0; i < 200; ++i) bits.push_back(payload_at * 8 + random() % (1408 * 8));
  for (size_t bit : bits) {
    Bytes damaged = whole;
    damaged[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    const RunResult run = host_->Run(damaged);
    EXPECT_EQ(run.action, XDP_DROP) << "bit " << bit;
  }
  ExpectNoTrace();
  EXPECT_GT(host_->Stats(kJob).verdicts[MLNET_V_DROP_CORRUPT], 200u);
  Expect(host_->Run(whole), MLNET_V_SUM_FIRST, XDP_DROP);
}

TEST_F(AdmitTest, ethernet_padding_behind_the_packet_is_ignored) {
  Bytes padded = Contribution(0, 0, 1).Build();
  padded.resize(padded.size() + 7, 0xee);
  Expect(host_->Run(padded), MLNET_V_SUM_FIRST, XDP_DROP);
}

TEST_F(AdmitTest, ping_of_a_child_is_answered_and_of_a_stranger_not) {
  Frame ping = Contribution(1, 4711).HeaderOnly(0);
  ping.type = MLNET_T_PING;
  ping.bitmap = 0x1234;
  const RunResult run = host_->Run(ping);
  Expect(run, MLNET_V_PONG, XDP_TX);
  EXPECT_EQ(ParseFrame(run.frame).frame.type, MLNET_T_PONG);
  EXPECT_EQ(ParseFrame(run.frame).frame.bitmap, 0x1234u);  // the way back, for the nodes between
  EXPECT_EQ(ParseFrame(run.frame).frame.seq, 4711u);
  EXPECT_EQ(ParseFrame(run.frame).frame.daddr, WorkerIp(1));
  ping.saddr = Ip("192.0.2.77");
  Expect(host_->Run(ping), MLNET_V_DROP_NOT_MEMBER, XDP_DROP);
}

TEST_F(AdmitTest, a_ping_shows_that_its_child_lives_and_of_no_other) {
  Frame ping = Contribution(1, 1).HeaderOnly(0);
  ping.type = MLNET_T_PING;
  Expect(host_->Run(ping), MLNET_V_PONG, XDP_TX);
  const uint64_t first_ns = host_->Link(kJob, 1).last_ns;
  EXPECT_GT(first_ns, 0u);
  Expect(host_->Run(ping), MLNET_V_PONG, XDP_TX);
  EXPECT_GT(host_->Link(kJob, 1).last_ns, first_ns);
  EXPECT_EQ(host_->Link(kJob, 0).last_ns, 0u);
  EXPECT_EQ(host_->Link(kJob, 2).last_ns, 0u);
  ping.saddr = WorkerIp(2);  // another's address
  Expect(host_->Run(ping), MLNET_V_DROP_NOT_MEMBER, XDP_DROP);
  Frame with_payload = Contribution(0, 1);
  with_payload.type = MLNET_T_PING;
  Expect(host_->Run(with_payload), MLNET_V_DROP_MALFORMED, XDP_DROP);
  EXPECT_EQ(host_->Link(kJob, 0).last_ns, 0u);
}

}  // namespace
}  // namespace mlnet::test
