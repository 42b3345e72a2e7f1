// SPDX-License-Identifier: Apache-2.0
// Several jobs at once on the same hosts, end to end: all sums right, each job its own data, in both orders.
#include "lab/lab_fixture.h"

namespace mlnet::lab_test {
namespace {

TEST(LabJobs, four_jobs_at_once_have_right_sums_and_no_cross_talk) {
  const Lab lab({"--workers", "3", "--aggregators", "1", "--rate", "200mbit", "--agg-rate", "1gbit", "--loss", "0.5"});
  const Output output = RunLab({"-j", "--name", lab.name(), "jobs", "--count", "4", "--bytes", "1M", "--calls", "4", "--order",
                                "fair,shortest", "--weights", "1,2"});
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const Json result = Json::parse(output.out);
  EXPECT_EQ(result["schema"], "mlnet-lab.jobs/1");
  ASSERT_EQ(result["rounds"].size(), 2u);
  for (const Json& round : result["rounds"]) {
    EXPECT_EQ(round["wrong"], 0);
    ASSERT_EQ(round["jobs"].size(), 4u);
    double sum_s = 0;
    for (const Json& job : round["jobs"]) {
      EXPECT_EQ(job["checked"], 3 * (1 << 20) / 4);  // ranks, elements of each
      EXPECT_GT(job["summed_in_kernel"].get<uint64_t>(), 0u);
      sum_s += job["seconds"].get<double>();
    }
    EXPECT_NEAR(round["mean_s"].get<double>(), sum_s / 4, 1e-6);
    EXPECT_GE(round["last_s"].get<double>(), round["mean_s"].get<double>());
  }
  EXPECT_EQ(result["rounds"][0]["jobs"][1]["weight"], 2);
}

}  // namespace
}  // namespace mlnet::lab_test
