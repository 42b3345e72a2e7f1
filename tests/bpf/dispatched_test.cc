// SPDX-License-Identifier: Apache-2.0
// The small program that a dispatcher gets, before the programs as mlnetd loads them. (Inside a dispatcher: vm_testbed, coexist.)
#include <bpf/libbpf.h>

#include "bpf/fixture.h"
#include "datapath/program.h"
#include "datapath/stats.h"
#include "xdp_dispatched.skel.h"

namespace mlnet::test {
namespace {

class DispatchedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = datapath::Program::Load({MLNET_UDP_PORT, 64});
    ASSERT_TRUE(loaded) << loaded.error().ToString();
    program_.emplace(std::move(*loaded));
    dispatched_ = xdp_dispatched::open();
    ASSERT_NE(dispatched_, nullptr);
    // As an extension has none: the kernel takes both to the same ml_programs, or refuses the second.
    bpf_program__set_expected_attach_type(dispatched_->progs.ml_dispatched, bpf_attach_type{});
    ASSERT_EQ(bpf_map__reuse_fd(dispatched_->maps.ml_programs, program_->MapFd("ml_programs")), 0);
    ASSERT_EQ(xdp_dispatched::load(dispatched_), 0);
  }
  void TearDown() override { xdp_dispatched::destroy(dispatched_); }

  int Run(Bytes frame) {
    LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame.data(), .data_size_in = static_cast<__u32>(frame.size()), .repeat = 1);
    EXPECT_EQ(bpf_prog_test_run_opts(bpf_program__fd(dispatched_->progs.ml_dispatched), &opts), 0);
    return static_cast<int>(opts.retval);
  }

  std::optional<datapath::Program> program_;
  xdp_dispatched* dispatched_ = nullptr;
};

TEST_F(DispatchedTest, a_packet_reaches_ml_ingress_and_what_is_not_mlnets_passes) {
  const Frame frame = Contribution(0, 0);
  EXPECT_EQ(Run(frame.Build()), XDP_DROP);
  const auto stats = datapath::ReadStats(*program_, 0);
  ASSERT_TRUE(stats) << stats.error().ToString();
  EXPECT_EQ(stats->verdicts[MLNET_V_DROP_UNKNOWN_JOB], 1u);
  Frame other = frame;
  other.dst_port = MLNET_UDP_PORT + 1;
  EXPECT_EQ(Run(other.Build()), XDP_PASS);
}

TEST_F(DispatchedTest, passes_everything_while_mlnets_programs_are_not_there) {
  for (uint32_t at = 0; at < bpf_map__max_entries(dispatched_->maps.ml_programs); ++at) {
    ASSERT_EQ(bpf_map_delete_elem(program_->MapFd("ml_programs"), &at), 0) << at;
  }
  EXPECT_EQ(Run(Contribution(0, 0).Build()), XDP_PASS);
}

}  // namespace
}  // namespace mlnet::test
