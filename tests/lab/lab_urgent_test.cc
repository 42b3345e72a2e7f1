// SPDX-License-Identifier: Apache-2.0
// Links that go by DSCP, and `mlnet-lab urgent` on them: all sums right, and each class in the queue that is its own, in
// both directions and on both of two bridges in a row. How fast that is, is nothing for a test.
#include <algorithm>
#include <sstream>

#include "lab/lab_fixture.h"

namespace mlnet::lab_test {
namespace {

// Packets that a queue of a switch's port has let out: "Sent N bytes M pkt".
uint64_t Packets(const Lab& lab, const std::string& device, const std::string& classid) {
  const Output shown =
      RunProgram({"tc", "-n", "ml-" + lab.name() + "-switch", "-s", "class", "show", "dev", device, "classid", classid});
  std::istringstream words(shown.out.substr(std::min(shown.out.size(), shown.out.find("Sent "))));
  std::string sent, unit;
  uint64_t bytes = 0, packets = 0;
  EXPECT_TRUE(words >> sent >> bytes >> unit >> packets) << device << " " << classid << "\n" << shown.out;
  return packets;
}

TEST(LabUrgent, classes_have_queues_of_their_own_over_two_bridges) {
  const Lab lab({"--workers", "2", "--aggregators", "1", "--rate", "200mbit", "--agg-rate", "200mbit", "--racks", "1", "--oversubscription",
                 "2", "--priorities"});
  const Output output = RunLab({"-j", "--name", lab.name(), "urgent", "--backlog", "8M", "--urgent", "64K", "--samples", "2",
                                "--fifo-samples", "1", "--shape", "star"});
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const Json result = Json::parse(output.out);
  EXPECT_EQ(result["schema"], "mlnet-lab.urgent/1");
  EXPECT_EQ(result["priorities"], true);
  EXPECT_EQ(result["wrong"], 0);
  // Ranks times turns: samples alone and behind a backlog, the backlog; and one sample behind another backlog.
  EXPECT_EQ(result["checked"], 2 * (2 * (4 * (64 << 10) / 4 + (8 << 20) / 4) + (64 << 10) / 4 + (8 << 20) / 4));
  EXPECT_EQ(result["idle"]["seconds"].size(), 2u);
  EXPECT_EQ(result["behind"]["seconds"].size(), 2u);
  EXPECT_EQ(result["unmarked"]["seconds"].size(), 2u);
  EXPECT_EQ(result["fifo"]["seconds"].size(), 1u);
  // 1:10 is CS7, 1:17 has no mark: contributions up from worker, rack and core; results all the way down.
  for (const char* device : {"i-w1", "i-r1", "p-a1", "i-a1", "p-r1", "p-w1"}) {
    EXPECT_GT(Packets(lab, device, "1:10"), 0u) << device;
    EXPECT_GT(Packets(lab, device, "1:17"), 0u) << device;
    EXPECT_EQ(Packets(lab, device, "1:13"), 0u) << device;  // nobody uses class 4
  }
}

}  // namespace
}  // namespace mlnet::lab_test
