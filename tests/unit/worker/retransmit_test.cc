// SPDX-License-Identifier: Apache-2.0
#include "retransmit.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace mlnet::worker {
namespace {

TEST(RttEstimator, follows_rfc_6298) {
  RttEstimator rtt(1, 1'000'000);
  rtt.Sample(800);
  EXPECT_EQ(rtt.srtt_ns(), 800u);
  EXPECT_EQ(rtt.rto_ns(), 800u + 4 * 400);
  rtt.Sample(1600);  // var = 3/4 * 400 + 1/4 * 800 = 500, srtt = 7/8 * 800 + 1/8 * 1600 = 900
  EXPECT_EQ(rtt.srtt_ns(), 900u);
  EXPECT_EQ(rtt.rto_ns(), 900u + 4 * 500);
}

RC_GTEST_PROP(RttEstimator, stays_within_its_bounds, (std::vector<uint32_t> samples, uint16_t backoffs)) {
  RttEstimator rtt(1000, 50'000);
  for (uint32_t sample : samples) rtt.Sample(sample);
  for (int i = 0; i < backoffs % 100; ++i) rtt.BackOff();
  RC_ASSERT(rtt.rto_ns() >= 1000u);
  RC_ASSERT(rtt.rto_ns() <= std::max<uint64_t>(50'000u, std::min<uint64_t>(2 * rtt.srtt_ns(), 250'000u)));
}

// With full queues: a timer that runs out before the answer can be there would send every packet twice.
TEST(RttEstimator, round_trips_longer_than_the_bound_raise_it) {
  RttEstimator rtt(1'000, 200'000);
  for (int i = 0; i < 64; ++i) rtt.Sample(300'000);
  EXPECT_GE(rtt.rto_ns(), 300'000u);
  for (int i = 0; i < 8; ++i) rtt.BackOff();
  EXPECT_EQ(rtt.rto_ns(), 600'000u);
  for (int i = 0; i < 64; ++i) rtt.Sample(90'000'000);  // waited for a slow rank
  EXPECT_EQ(rtt.rto_ns(), 1'000'000u);
  for (int i = 0; i < 64; ++i) rtt.Sample(500);
  EXPECT_LE(rtt.rto_ns(), 200'000u);
}

TEST(RttEstimator, with_losses_the_bound_holds) {
  RttEstimator rtt(1'000, 200'000);
  for (int i = 0; i < 1000; ++i) {
    rtt.Sample(900'000);
    if (i % 50 == 0) rtt.OnLoss();
  }
  EXPECT_EQ(rtt.rto_ns(), 200'000u);
}

// A shaper's bucket: some tens of packets at once, then nothing until it is paid for.
TEST(RttEstimator, a_link_that_stands_still_between_bursts_is_waited_for) {
  RttEstimator rtt(1'000, 200'000);
  for (int burst = 0; burst < 10; ++burst) {
    for (int i = 0; i < 15; ++i) rtt.Sample(8'300);
    for (int i = 0; i < 45; ++i) {
      rtt.Sample(120);
      EXPECT_GE(rtt.rto_ns(), 8'300u + 1'000u) << "burst " << burst << ", " << i;
    }
    EXPECT_LT(rtt.rto_ns(), 4 * 8'300u);
  }
  for (int i = 0; i < 128; ++i) rtt.Sample(120);  // shaped no more
  EXPECT_EQ(rtt.rto_ns(), 120u + 1'000u);
}

// Where its timer runs out in each pause, only that is left to tell how long one is.
TEST(RttEstimator, pauses_in_which_the_timer_ran_out_are_waited_for) {
  constexpr uint64_t kMs = 1'000'000;
  RttEstimator rtt(kMs, 200 * kMs);
  for (int i = 0; i < 128; ++i) rtt.Sample(kMs / 10);
  for (int i = 0; i < 4; ++i) rtt.Wait(8 * kMs);
  EXPECT_EQ(rtt.rto_ns(), 9 * kMs);
}

// No pause is that long: it was a repair, whose timer would grow with ours.
TEST(RttEstimator, long_waits_for_repairs_do_not_add_up) {
  constexpr uint64_t kMs = 1'000'000;
  RttEstimator rtt(kMs, 200 * kMs);
  for (int i = 0; i < 128; ++i) rtt.Sample(kMs / 10);
  for (int i = 0; i < 100; ++i) rtt.Wait(rtt.rto_ns() + kMs);
  EXPECT_EQ(rtt.rto_ns(), 11 * kMs);
  EXPECT_EQ(rtt.srtt_ns(), kMs / 10);
}

TEST(RttEstimator, what_waited_for_the_repair_of_another_rank_is_forgotten) {
  RttEstimator rtt(1'000, 200'000);
  for (int lost = 0; lost < 10; ++lost) {
    for (int i = 0; i < 3; ++i) rtt.Sample(8'300);
    for (int i = 0; i < 60; ++i) rtt.Sample(120);
    EXPECT_EQ(rtt.rto_ns(), 120u + 1'000u);
  }
}

TEST(RttEstimator, backs_off_until_a_sample_comes) {
  RttEstimator rtt(100, 100'000);
  rtt.Sample(100);
  const uint64_t rto = rtt.rto_ns();
  rtt.BackOff();
  rtt.BackOff();
  EXPECT_EQ(rtt.rto_ns(), 4 * rto);
  rtt.Sample(100);
  EXPECT_LE(rtt.rto_ns(), rto);
}

TEST(RttEstimator, the_path_is_the_shortest_of_the_newest_samples) {
  RttEstimator rtt(1, 1'000'000);
  rtt.Sample(50);
  for (int i = 0; i < 20; ++i) rtt.Sample(400);
  EXPECT_EQ(rtt.path_ns(), 50u);
  for (int i = 0; i < 64; ++i) rtt.Sample(300);  // the path became longer: the old minimum is forgotten
  EXPECT_EQ(rtt.path_ns(), 300u);
}

TEST(RttEstimator, a_queue_is_what_comes_on_top_of_the_shortest_round_trip_ever) {
  RttEstimator rtt(1, 1'000'000);
  EXPECT_EQ(rtt.queued_ns(), 0u);
  rtt.Sample(50);
  EXPECT_EQ(rtt.queued_ns(), 0u);
  for (int i = 0; i < 200; ++i) rtt.Sample(450);  // a queue that stands
  EXPECT_NEAR(static_cast<double>(rtt.queued_ns()), 400, 8);
}

TEST(Overtaken, three_later_answers_are_needed) {
  Overtaken overtaken;
  EXPECT_FALSE(overtaken.IsOvertaken(1));
  overtaken.OnAnswer(5);
  overtaken.OnAnswer(9);
  EXPECT_FALSE(overtaken.IsOvertaken(1));
  overtaken.OnAnswer(2);
  EXPECT_TRUE(overtaken.IsOvertaken(1));
  EXPECT_FALSE(overtaken.IsOvertaken(2));
  EXPECT_FALSE(overtaken.IsOvertaken(10));  // sent once more: the count starts again
}

TEST(RetryGate, opens_once_per_timeout_and_for_what_answers_allow) {
  RetryGate gate;
  EXPECT_TRUE(gate.IsOpen(100));
  gate.CloseUntil(200);
  EXPECT_FALSE(gate.IsOpen(150));
  EXPECT_FALSE(gate.TakeToken());
  gate.OnAnswer();
  EXPECT_TRUE(gate.TakeToken());
  EXPECT_TRUE(gate.TakeToken());
  EXPECT_FALSE(gate.TakeToken());
  EXPECT_TRUE(gate.IsOpen(200));
}

}  // namespace
}  // namespace mlnet::worker
