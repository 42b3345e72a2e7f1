// SPDX-License-Identifier: Apache-2.0
// A recorded training over slow links, end to end: all sums right, and each policy in the classes that it should use.
#include "lab/lab_fixture.h"

namespace mlnet::lab_test {
namespace {

// Ten layers of 64 KiB and a large one, the last.
std::string SmallTrace() {
  Json layers = Json::array();
  for (uint32_t i = 0; i < 11; ++i) {
    const Json needs = i == 0 ? Json::array() : Json::array({i - 1});
    layers.push_back({{"name", "layer" + std::to_string(i)}, {"bytes", i == 10 ? 1 << 20 : 1 << 16}, {"forward_ns", 2'000'000},
                      {"backward_ns", 2'000'000}, {"needs", needs}});
  }
  return Json{{"schema", "mlnet.trace/1"}, {"model", "small"}, {"layers", layers}}.dump();
}

TEST(LabLayers, SumsAreRightAndPoliciesUseTheirClasses) {
  const Lab lab({"--workers", "2", "--aggregators", "1", "--rate", "50mbit", "--agg-rate", "100mbit"});
  const TextFile trace(SmallTrace());
  const Output output = RunLab({"-j", "--name", lab.name(), "layers", "--trace", trace.path(), "--policy", "fifo,bytescheduler", "--iters",
                                "2", "--warmup", "1", "--rounds", "2", "--partition", "128K", "--credit", "256K"});
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const Json result = Json::parse(output.out);
  EXPECT_EQ(result["schema"], "mlnet-lab.layers/1");
  EXPECT_EQ(result["bytes"], 10 * (1 << 16) + (1 << 20));
  EXPECT_GT(result["bound_s"], 0.044);  // of computing alone
  ASSERT_EQ(result["policies"].size(), 2u);
  for (const Json& policy : result["policies"]) {
    EXPECT_EQ(policy["wrong"], 0);
    EXPECT_EQ(policy["iterations_s"].size(), 4u);
    // Both ends of ten tensors, one whole tensor, of three iterations, two ranks, two rounds.
    EXPECT_GT(policy["checked"], 12 * (10 * 128 + (1 << 14)) - 1);
    EXPECT_GT(policy["summed_in_kernel"], 0);
    EXPECT_GT(policy["least_s"], 0.044);
  }
  // Three iterations in two rounds: 11 whole tensors in one class; with the large one in 8 chunks, 18 calls in all 8.
  const Json& fifo = result["policies"][0]["calls"];
  EXPECT_EQ(fifo, Json({0, 0, 0, 0, 0, 0, 0, 66}));
  uint64_t calls = 0;
  for (const Json& of_class : result["policies"][1]["calls"]) {
    EXPECT_GT(of_class, 0);
    calls += of_class.get<uint64_t>();
  }
  EXPECT_EQ(calls, 6 * 18u);
}

TEST(LabLayers, SaysWhichTraceIsNotThere) {
  const Lab lab({"--workers", "2", "--aggregators", "1"});
  const Output output = RunLab({"--name", lab.name(), "layers", "--trace", "nosuch"});
  EXPECT_EQ(output.exit_code, 3);
  EXPECT_THAT(output.err, testing::HasSubstr("there is no trace 'nosuch'"));
}

}  // namespace
}  // namespace mlnet::lab_test
