// SPDX-License-Identifier: Apache-2.0
// The tc program: a packet as a process sends it in, the packet as it leaves out.
#include <bpf/libbpf.h>
#include <linux/pkt_cls.h>

#include <cstring>

#include "bpf/fixture.h"
#include "mlnet/config.h"
#include "mlnet/tag.h"
#include "priority_tag.skel.h"

namespace mlnet::test {
namespace {

constexpr uint8_t kLowerEffort = 1;

uint8_t Tos(uint8_t dscp, uint8_t ecn = 0) { return static_cast<uint8_t>(dscp << 2 | ecn); }

struct TagRun {
  int action = -1;
  Bytes frame;
  uint32_t priority = 0;
};

/// `tags` 802.1Q headers behind the addresses, the first one outermost.
Bytes WithVlans(const Bytes& frame, const std::vector<uint16_t>& tags) {
  Bytes out(frame.begin(), frame.begin() + 12);
  for (const uint16_t tci : tags) {
    for (const int byte : {0x81, 0x00, tci >> 8, tci & 0xff}) out.push_back(static_cast<uint8_t>(byte));
  }
  out.insert(out.end(), frame.begin() + 12, frame.end());
  return out;
}
Bytes WithoutVlans(Bytes frame, size_t count) {
  frame.erase(frame.begin() + 12, frame.begin() + 12 + 4 * static_cast<long>(count));
  return frame;
}
uint16_t TciOf(const Bytes& frame) { return static_cast<uint16_t>(frame[14] << 8 | frame[15]); }

class TagTest : public ::testing::Test {
 protected:
  void SetUp() override {
    skeleton_ = priority_tag::open_and_load();
    ASSERT_NE(skeleton_, nullptr) << strerror(errno) << " (root or CAP_BPF needed)";
    node_.flags = MLNET_NODE_DELIVER;
    node_.epoch = 1;
    node_.uid = MLNET_UID_ANY;
    for (const uint8_t pool : {0, 1, 2, 5, 10}) node_.pools[pool].is_open = 1;  // 10: fix-up stream of class 2
    const auto marks = ClassSelectors();
    std::copy(marks.begin(), marks.end(), node_.marks);
    InstallJob();
  }
  void TearDown() override { priority_tag::destroy(skeleton_); }

  void InstallJob() {
    entry_ = Fd(bpf_map_create(BPF_MAP_TYPE_ARRAY, "t_job", sizeof(uint32_t), sizeof(mlnet_node), MLNET_TREES_MAX, nullptr));
    const uint32_t tree = 0, job = kJob;
    const int fd = entry_.get();
    ASSERT_EQ(bpf_map_update_elem(fd, &tree, &node_, BPF_ANY), 0);
    ASSERT_EQ(bpf_map_update_elem(bpf_map__fd(skeleton_->maps.ml_jobs), &job, &fd, BPF_ANY), 0);
  }

  static Frame Sent(uint8_t class_stream, uint8_t tos) {
    Frame f = Contribution(0, 3);
    f.class_stream = class_stream;
    f.tos = tos;
    return f;
  }

  TagRun Run(const Bytes& frame, uint32_t gso_segs = 0) {
    TagRun run;
    run.frame.resize(frame.size() + 64);
    __sk_buff ctx_in{}, ctx_out{};
    ctx_in.priority = 77;
    ctx_in.gso_segs = gso_segs;
    ctx_in.gso_size = gso_segs == 0 ? 0 : 1472;
    bpf_test_run_opts opts{};
    opts.sz = sizeof(opts);
    opts.data_in = frame.data();
    opts.data_size_in = static_cast<uint32_t>(frame.size());
    opts.data_out = run.frame.data();
    opts.data_size_out = static_cast<uint32_t>(run.frame.size());
    opts.ctx_in = &ctx_in;
    opts.ctx_size_in = sizeof(ctx_in);
    opts.ctx_out = &ctx_out;
    opts.ctx_size_out = sizeof(ctx_out);
    opts.repeat = 1;
    EXPECT_EQ(bpf_prog_test_run_opts(bpf_program__fd(skeleton_->progs.ml_tag), &opts), 0) << strerror(errno);
    run.frame.resize(opts.data_size_out);
    run.action = static_cast<int>(opts.retval);
    run.priority = ctx_out.priority;
    return run;
  }

  uint64_t Count(uint8_t traffic_class, mlnet_tag outcome) {
    std::vector<mlnet_tags> per_cpu(static_cast<size_t>(libbpf_num_possible_cpus()));
    const uint32_t key = traffic_class;
    EXPECT_EQ(bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.ml_tags), &key, per_cpu.data()), 0);
    uint64_t sum = 0;
    for (const mlnet_tags& one : per_cpu) sum += one.packets[outcome];
    return sum;
  }
  uint64_t CountAll() {
    uint64_t sum = 0;
    for (uint8_t c = 0; c < MLNET_CLASSES_MAX; ++c) {
      for (int outcome = 0; outcome < MLNET_TAG_COUNT; ++outcome) sum += Count(c, static_cast<mlnet_tag>(outcome));
    }
    return sum;
  }

  /// The frame left with `dscp` and nothing else changed.
  void ExpectOnlyDscp(const Frame& sent, const TagRun& run, uint8_t dscp) {
    EXPECT_EQ(run.action, TC_ACT_UNSPEC);
    Frame expected = sent;
    expected.tos = Tos(dscp, sent.tos & 3);
    EXPECT_EQ(run.frame, expected.Build());  // with a checksum that the harness has computed over all of the header
  }

  priority_tag* skeleton_ = nullptr;
  mlnet_node node_{};
  Fd entry_;
};

TEST_F(TagTest, every_class_gets_its_dscp_whatever_the_process_set) {
  for (const uint8_t traffic_class : {0, 1, 2, 5}) {
    for (const uint8_t set : {0, 1, 8, 46, 56, 63}) {
      const Frame sent = Sent(traffic_class, Tos(set));
      const TagRun run = Run(sent.Build());
      ExpectOnlyDscp(sent, run, static_cast<uint8_t>(8 * traffic_class));
      EXPECT_EQ(run.priority, traffic_class);
    }
  }
  EXPECT_EQ(Count(0, MLNET_TAG_TAGGED), 1u);
  EXPECT_EQ(Count(0, MLNET_TAG_OVERRULED), 5u);
  EXPECT_EQ(Count(1, MLNET_TAG_TAGGED), 1u);
  EXPECT_EQ(Count(1, MLNET_TAG_OVERRULED), 5u);
  EXPECT_EQ(Count(5, MLNET_TAG_OVERRULED), 6u);
}

TEST_F(TagTest, ecn_stays) {
  for (const uint8_t ecn : {0, 1, 2, 3}) {
    const Frame sent = Sent(2, Tos(7, ecn));
    ExpectOnlyDscp(sent, Run(sent.Build()), 16);
  }
}

TEST_F(TagTest, the_fixup_stream_has_the_mark_of_its_class) {
  const Frame sent = Sent(MLNET_CLASS_STREAM(2, 1), 0);
  ExpectOnlyDscp(sent, Run(sent.Build()), 16);
  EXPECT_EQ(Count(2, MLNET_TAG_OVERRULED), 1u);
}

TEST_F(TagTest, the_policy_changes_while_the_program_runs) {
  const Frame sent = Sent(5, Tos(40));
  ExpectOnlyDscp(sent, Run(sent.Build()), 40);
  node_.marks[5] = {Tos(34), 3};  // as under a ceiling of 3
  InstallJob();
  TagRun run = Run(sent.Build());
  ExpectOnlyDscp(sent, run, 34);
  EXPECT_EQ(run.priority, 3u);
  node_.marks[5] = {Tos(kLowerEffort), MLNET_PRIORITY_WAITS};
  InstallJob();
  run = Run(sent.Build());
  ExpectOnlyDscp(sent, run, kLowerEffort);
  EXPECT_EQ(run.priority, static_cast<uint32_t>(MLNET_PRIORITY_WAITS));
  EXPECT_EQ(Count(5, MLNET_TAG_TAGGED), 3u) << "the sender did what libmlnet does, and knows of no table";
  EXPECT_EQ(Count(5, MLNET_TAG_OVERRULED), 0u);
}

TEST_F(TagTest, tags_in_the_frame_get_the_priority_too) {
  const Frame sent = Sent(5, 0);
  Frame expected = sent;
  expected.tos = Tos(40);
  const uint16_t id_and_dei = 0x1000 | 123;
  const Bytes once = Run(WithVlans(sent.Build(), {0xe000 | id_and_dei})).frame;
  EXPECT_EQ(TciOf(once), 5 << 13 | id_and_dei);
  EXPECT_EQ(WithoutVlans(once, 1), expected.Build());
  const Bytes twice = Run(WithVlans(sent.Build(), {7, 0x2009})).frame;
  EXPECT_EQ(TciOf(twice), 5 << 13 | 7);
  EXPECT_EQ(TciOf(WithoutVlans(twice, 1)), 0x2009) << "the inner tag is not the next switch's";
  EXPECT_EQ(WithoutVlans(twice, 2), expected.Build());
  EXPECT_EQ(Count(5, MLNET_TAG_OVERRULED), 2u);
  const Bytes waits = WithVlans(sent.Build(), {0xa000 | 9});
  node_.marks[5] = {Tos(kLowerEffort), MLNET_PRIORITY_WAITS};
  InstallJob();
  EXPECT_EQ(TciOf(Run(waits).frame), 9);
}

TEST_F(TagTest, a_batch_is_tagged_by_one_header_and_counted_by_segments) {
  const Frame sent = Sent(1, 0);
  ExpectOnlyDscp(sent, Run(sent.Build(), 23), 8);
  EXPECT_EQ(Count(1, MLNET_TAG_OVERRULED), 23u);
}

TEST_F(TagTest, a_class_that_the_job_does_not_have_is_worth_nothing) {
  const Frame sent = Sent(7, Tos(56));
  const TagRun run = Run(sent.Build());
  ExpectOnlyDscp(sent, run, 0);
  EXPECT_EQ(run.priority, 0u);
  EXPECT_EQ(Count(7, MLNET_TAG_NO_CLASS), 1u);
}

TEST_F(TagTest, nor_is_a_job_of_which_this_host_has_no_part) {
  Frame other_job = Sent(5, Tos(40)), other_tree = other_job, old = other_job;
  other_job.job = kJob + 1;
  other_tree.tree = 1;
  old.epoch = 2;
  Frame no_such_tree = other_job;
  no_such_tree.tree = MLNET_TREES_MAX;
  for (const Frame& sent : {other_job, other_tree, old, no_such_tree}) ExpectOnlyDscp(sent, Run(sent.Build()), 0);
  EXPECT_EQ(Count(5, MLNET_TAG_UNKNOWN_JOB), 4u);
  EXPECT_EQ(CountAll(), 4u);
}

TEST_F(TagTest, all_other_traffic_leaves_bit_by_bit_as_it_came) {
  std::vector<Bytes> others;
  const auto add = [&](auto change) {
    Frame f = Sent(5, Tos(46, 1));
    change(f);
    others.push_back(f.Build());
  };
  add([](Frame& f) { f.dst_port = MLNET_UDP_PORT + 1; });
  add([](Frame& f) { f.version = 2; });
  add([](Frame& f) { f.type = 0; });
  add([](Frame& f) { f.type = 12; });
  add([](Frame& f) { f.class_stream = 16; });
  add([](Frame& f) { f.nominal_words = 17; });
  add([](Frame& f) { f.nominal_words = MLNET_WORDS_MAX + MLNET_BLOCK_WORDS; });
  const size_t protocol_at = IsIpv6Run() ? 20 : 23;
  Bytes tcp = Sent(5, Tos(46)).Build();
  tcp[protocol_at] = 6;
  others.push_back(tcp);
  Bytes arp(60, 0xab);
  arp[12] = 0x08, arp[13] = 0x06;
  others.push_back(arp);
  const Bytes whole = Sent(5, Tos(46)).Build();
  others.emplace_back(whole.begin(), whole.begin() + static_cast<long>(HeaderAt(whole)) + 4);
  others.push_back(WithVlans(whole, {1, 2, 3}));
  if (!IsIpv6Run()) {
    add([](Frame& f) { f.ip_frag_off = 0x2000; });
    add([](Frame& f) { f.ip_frag_off = 0x0010; });
  }
  for (const Bytes& frame : others) {
    const TagRun run = Run(frame);
    EXPECT_EQ(run.action, TC_ACT_UNSPEC);
    EXPECT_EQ(run.frame, frame);
    EXPECT_EQ(run.priority, 77u);
  }
  EXPECT_EQ(CountAll(), 0u);
}

TEST_F(TagTest, root_may_send_for_every_job) {
  node_.uid = 4242;
  InstallJob();
  const Frame sent = Sent(1, 0);
  ExpectOnlyDscp(sent, Run(sent.Build()), 8);  // a test run's socket is root's
  EXPECT_EQ(Count(1, MLNET_TAG_OVERRULED), 1u);
}

}  // namespace
}  // namespace mlnet::test
