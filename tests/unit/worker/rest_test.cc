// SPDX-License-Identifier: Apache-2.0
#include "rest.h"

#include <gtest/gtest.h>

namespace mlnet::worker {
namespace {

TEST(Rest, naps_after_a_burst_and_asks_to_be_woken_after_less) {
  Rest rest;
  EXPECT_FALSE(rest.ShouldNap(0));
  EXPECT_FALSE(rest.ShouldNap(31));
  EXPECT_TRUE(rest.ShouldNap(31 + 32));
  EXPECT_TRUE(rest.ShouldNap(31 + 32 + 1000));
}

TEST(Rest, a_nap_that_finds_nothing_is_the_last) {
  Rest rest;
  EXPECT_TRUE(rest.ShouldNap(100));
  EXPECT_FALSE(rest.ShouldNap(100));
  EXPECT_FALSE(rest.ShouldNap(131));
}

TEST(Rest, a_trickle_never_adds_up_to_a_burst) {
  Rest rest;
  for (uint64_t results = 0; results < 3100; results += 31) EXPECT_FALSE(rest.ShouldNap(results)) << results;
}

}  // namespace
}  // namespace mlnet::worker
