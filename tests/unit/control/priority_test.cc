// SPDX-License-Identifier: Apache-2.0
// From ceiling, turn and class to the marks of packets.
#include "control/priority.h"

#include <gtest/gtest.h>

namespace mlnet::control {
namespace {

TEST(priority, each_class_has_its_own_mark) {
  const Marks marks = MarksOf(kDscpDefault, 7, {});
  for (uint8_t c = 0; c < 8; ++c) {
    EXPECT_EQ(marks[c].tos, c * 32) << int{c};  // CSc, in the upper six bits
    EXPECT_EQ(marks[c].priority, c);
  }
}

TEST(priority, classes_above_the_ceiling_are_the_ceiling) {
  const DscpTable table = {0, 10, 18, 26, 34, 46, 48, 56};
  const Marks marks = MarksOf(table, 3, {});
  EXPECT_EQ(marks[2].tos, 18 << 2);
  for (const size_t c : {3, 4, 7}) {
    EXPECT_EQ(marks[c].tos, 26 << 2) << c;
    EXPECT_EQ(marks[c].priority, 3) << c;
  }
}

TEST(priority, a_job_that_waits_is_below_all_others_in_every_class) {
  Grant waits;
  waits.waits = true;
  waits.dscp = 1;
  for (const mlnet_mark& mark : MarksOf(kDscpDefault, 7, waits)) {
    EXPECT_EQ(mark.tos, 1 << 2);
    EXPECT_EQ(mark.priority, 8);
  }
}

// Next in line too: where switches go by precedence, any class selector would let it pass the job in front.
TEST(priority, whoever_waits_is_granted_lower_effort) {
  for (const uint32_t level : {1u, 2u, 3u}) EXPECT_EQ(GrantOf({.share = 0, .waits = true, .level = level}).dscp, kLowerEffort);
  EXPECT_EQ(GrantOf({.share = 0.5}).dscp, -1);
}

TEST(priority, marks_differ_by_either_half) {
  const Marks marks = MarksOf(kDscpDefault, 7, {});
  Marks other = marks;
  EXPECT_TRUE(IsSame(marks, other));
  other[4].tos = 4;
  EXPECT_FALSE(IsSame(marks, other));
  other = marks;
  other[7].priority = 1;
  EXPECT_FALSE(IsSame(marks, other));
}

}  // namespace
}  // namespace mlnet::control
