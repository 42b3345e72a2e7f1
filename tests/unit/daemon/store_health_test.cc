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

control::HostRecord Host(const std::string& name, uint64_t heartbeat_ms, bool running = true) {
  control::HostRecord host;
  host.host = name;
  host.heartbeat_ms = heartbeat_ms;
  host.running = running;
  return host;
}

TEST(store_health, daemon_that_has_just_started_does_not_call_a_silent_host_dead) {
  const std::vector<control::HostRecord> hosts = {Host("alive", 100'100), Host("silent", 85'000), Host("stopped", 10, false)};
  const auto* silent = NotHeardYet(hosts, "own", 100'000, 100'200);
  ASSERT_NE(silent, nullptr);
  EXPECT_EQ(silent->host, "silent");
  EXPECT_EQ(NotHeardYet(hosts, "own", 100'000, 110'000), silent) << "as long as hosts have after an outage that was seen";
  EXPECT_EQ(NotHeardYet(hosts, "own", 100'000, 110'001), nullptr) << "it had its time";
}

TEST(store_health, daemon_that_has_just_started_waits_for_nobody_when_all_were_heard) {
  EXPECT_EQ(NotHeardYet({Host("alive", 99'500), Host("stopped", 10, false)}, "own", 100'000, 100'200), nullptr);
  EXPECT_EQ(NotHeardYet({Host("own", 10)}, "own", 100'000, 100'200), nullptr) << "left by the daemon before it";
  EXPECT_EQ(NotHeardYet({Host("back", 100'100)}, "own", 100'000, 100'200), nullptr);
}

}  // namespace
}  // namespace mlnet::daemon
