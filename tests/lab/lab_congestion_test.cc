// SPDX-License-Identifier: Apache-2.0
// Incast: the links of all workers end in one port of the aggregator's, as fast as each of them, with a short queue.
#include "lab_fixture.h"

namespace mlnet::lab_test {
namespace {

// An all-reduce over that port: right, and at an end. How many frames the switch has marked in front of it.
uint64_t MarkedInSum(std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--workers", "4", "--rate", "200mbit", "--agg-rate", "200mbit"});
  const Lab lab(flags);
  const Output output = RunLab({"--name", lab.name(), "-j", "perf", "--shape", "star", "--sizes", "1M", "--iters", "4", "--check"});
  EXPECT_EQ(output.exit_code, 0) << output.err;
  if (output.exit_code == 0) {
    EXPECT_EQ(Json::parse(output.out)["rows"][0]["wrong"], 0);
  }
  return lab.Link("a1", "rx")["marked"];
}

TEST(Congestion, a_sum_ends_where_the_queue_is_short) { EXPECT_EQ(MarkedInSum({"--queue", "64"}), 0u); }

TEST(Congestion, the_switch_marks_from_so_many_bytes_on) {
  EXPECT_GT(MarkedInSum({"--queue", "64", "--mark", "24"}), 0u);
  EXPECT_EQ(MarkedInSum({"--mark", "4000"}), 0u);
}

}  // namespace
}  // namespace mlnet::lab_test
