// SPDX-License-Identifier: Apache-2.0
// Quotas of a host: what is refused, and that the message says by which limit and what to do.
#include "control/quota.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mlnet::control {
namespace {

using ::testing::HasSubstr;

const std::vector<Holder> kHolders = {{"a", 1000, 768}, {"b", 1000, 256}, {"c", 1001, 4096}};

TEST(Quota, without_limits_everything_is_allowed) {
  EXPECT_TRUE(CheckJobQuota({}, "w1", {"d", 1000, 1 << 20}, kHolders));
  EXPECT_TRUE(CheckSlotQuota({}, "w1", {"d", 1000, 1 << 20}, kHolders));
}

TEST(Quota, a_user_has_so_many_jobs_and_more_ranks_of_them) {
  const Quota quota{.jobs_per_user = 2};
  EXPECT_TRUE(CheckJobQuota(quota, "w1", {"a", 1000, 0}, kHolders));  // another rank of a job that is there
  EXPECT_TRUE(CheckJobQuota(quota, "w1", {"d", 1001, 0}, kHolders));
  const auto refused = CheckJobQuota(quota, "w1", {"d", 1000, 0}, kHolders);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPermission);
  EXPECT_THAT(refused.error().message, HasSubstr("'d'"));
  EXPECT_THAT(refused.error().message, HasSubstr("(a, b)"));
  EXPECT_THAT(refused.error().message, HasSubstr("jobs_per_user = 2 in [quota] of host w1"));
  EXPECT_THAT(refused.error().hint, HasSubstr("end one of them"));
}

TEST(Quota, a_job_has_so_many_slots) {
  const Quota quota{.slots_per_job = 1024};
  EXPECT_TRUE(CheckSlotQuota(quota, "a1", {"d", 1000, 1024}, kHolders));
  const auto refused = CheckSlotQuota(quota, "a1", {"d", 1000, 1025}, kHolders);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("needs 1025 slots, slots_per_job = 1024 in [quota] of host a1"));
  EXPECT_THAT(refused.error().hint, HasSubstr("--slots"));
}

TEST(Quota, a_user_has_so_many_slots_in_all_jobs) {
  const Quota quota{.slots_per_user = 2048};
  EXPECT_TRUE(CheckSlotQuota(quota, "a1", {"d", 1000, 1024}, kHolders));
  EXPECT_FALSE(CheckSlotQuota(quota, "a1", {"d", 1001, 1}, kHolders));
  const auto refused = CheckSlotQuota(quota, "a1", {"d", 1000, 1025}, kHolders);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("user 1000 holds 1024 there already"));
}

}  // namespace
}  // namespace mlnet::control
