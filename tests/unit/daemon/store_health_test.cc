// SPDX-License-Identifier: Apache-2.0
// Who is judged dead after an outage, and who is not.
#include "daemon/store_health.h"

#include <gtest/gtest.h>

namespace mlnet::daemon {
namespace {

TEST(store_health, without_an_outage_heartbeats_are_what_they_are) {
  const StoreHealth health;
  EXPECT_EQ(health.Outage(), "");
  EXPECT_EQ(health.Graced(5), 5u);
}

TEST(store_health, only_the_first_sign_begins_and_ends_an_outage) {
  StoreHealth health;
  EXPECT_FALSE(health.MarkUp(1));
  EXPECT_TRUE(health.MarkDown("one", 2));
  EXPECT_FALSE(health.MarkDown("two", 3));
  EXPECT_EQ(health.Outage(), "one");
  EXPECT_TRUE(health.MarkUp(4));
  EXPECT_FALSE(health.MarkUp(5));
  EXPECT_EQ(health.Outage(), "");
}

TEST(store_health, who_lived_at_its_beginning_is_judged_from_its_end_on) {
  StoreHealth health;
  health.MarkDown("gone", 100'000);
  health.MarkUp(200'000);
  EXPECT_EQ(health.Graced(99'000), 200'000u);
  EXPECT_EQ(health.Graced(90'000), 200'000u) << "not stale yet when it began";
  EXPECT_EQ(health.Graced(89'999), 89'999u) << "dead by then";
  EXPECT_EQ(health.Graced(200'500), 200'500u);
}

TEST(store_health, outages_in_a_row_are_one) {
  StoreHealth health;
  health.MarkDown("gone", 100'000);
  health.MarkUp(130'000);
  health.MarkDown("again", 131'000);  // others may not have come to write one meanwhile
  health.MarkUp(160'000);
  EXPECT_EQ(health.Graced(99'000), 160'000u);
  health.MarkDown("much later", 500'000);
  health.MarkUp(510'000);
  EXPECT_EQ(health.Graced(99'000), 99'000u);
}

}  // namespace
}  // namespace mlnet::daemon
