// SPDX-License-Identifier: Apache-2.0
#include "send_window.h"

#include <gtest/gtest.h>

namespace mlnet::worker {
namespace {

constexpr uint64_t kRtt = 1000;

// Answers `count` packets of a window that is always full, spread over one round trip each window.
void Answer(SendWindow& window, uint64_t& now, int count) {
  for (int i = 0; i < count; ++i) {
    window.OnAnswer(now, kRtt, window.size());
    now += kRtt / window.size();
  }
}

TEST(SendWindow, starts_at_the_first_window_and_never_exceeds_the_most) {
  uint64_t now = 0;
  SendWindow window(32, 128, 128, 4);
  EXPECT_EQ(window.size(), 32u);
  Answer(window, now, 32);
  EXPECT_EQ(window.size(), 64u);  // slow start: doubled in a round
  Answer(window, now, 1000);
  EXPECT_EQ(window.size(), 128u);
  EXPECT_EQ(SendWindow(32, 8, 8, 4).size(), 8u);
}

TEST(SendWindow, grows_only_while_it_is_full) {
  SendWindow window(32, 128, 128, 4);
  for (uint64_t i = 0; i < 1000; ++i) window.OnAnswer(i * 10, kRtt, 5);
  EXPECT_EQ(window.size(), 32u);
}

TEST(SendWindow, lone_losses_are_tolerated) {
  uint64_t now = 0;
  SendWindow window(64, 64, 64, 4);
  for (int i = 0; i < 100; ++i) {
    Answer(window, now, 19);
    window.OnLoss(now, kRtt);  // 5 %: what 1 % on each hop of four ranks looks like
  }
  EXPECT_EQ(window.size(), 64u);
}

TEST(SendWindow, a_burst_of_losses_halves_once_a_round_then_growth_is_slow) {
  uint64_t now = 0;
  SendWindow window(64, 64, 64, 4);
  Answer(window, now, 64);
  for (int i = 0; i < 60; ++i) window.OnLoss(now, kRtt);
  EXPECT_EQ(window.size(), 32u);
  now += 2 * kRtt;
  Answer(window, now, 33);
  EXPECT_EQ(window.size(), 33u);  // one packet a round trip from here
}

TEST(SendWindow, a_limit_holds_at_once_and_what_it_held_back_grows_again) {
  uint64_t now = 0;
  SendWindow window(32, 128, 128, 4);
  Answer(window, now, 200);
  ASSERT_EQ(window.size(), 128u);
  window.SetLimit(1);
  EXPECT_EQ(window.size(), 1u);
  window.SetLimit(0);
  EXPECT_EQ(window.size(), 1u);  // never nothing
  window.SetLimit(128);
  EXPECT_EQ(window.size(), 32u);
  Answer(window, now, 96);
  EXPECT_EQ(window.size(), 128u);
  window.SetLimit(64);
  window.SetLimit(128);
  EXPECT_EQ(window.size(), 64u);
}

TEST(SendWindow, losses_count_again_when_all_ranks_have_heard) {
  uint64_t now = 0;
  SendWindow window(64, 64, 64, 4);
  window.IgnoreLossesUntil(1000 * kRtt);
  Answer(window, now, 64);
  for (int i = 0; i < 60; ++i) window.OnLoss(now, kRtt);
  EXPECT_EQ(window.size(), 64u);
  now = 1000 * kRtt;
  Answer(window, now, 64);
  for (int i = 0; i < 60; ++i) window.OnLoss(now, kRtt);
  EXPECT_EQ(window.size(), 32u);
}

TEST(SendWindow, uses_the_whole_pool_where_nothing_was_lost_for_long) {
  uint64_t now = 0;
  SendWindow window(32, 128, 256, 4);
  Answer(window, now, 1000);
  EXPECT_EQ(window.size(), 128u);
  Answer(window, now, 300);
  EXPECT_EQ(window.size(), 256u);
  Answer(window, now, 1000);
  EXPECT_EQ(window.size(), 256u);
}

TEST(SendWindow, one_loss_beyond_its_ordinary_bound_takes_it_back_for_good) {
  uint64_t now = 0;
  SendWindow window(32, 128, 256, 4);
  Answer(window, now, 1300);
  window.OnLoss(now, kRtt);
  EXPECT_EQ(window.size(), 128u);
  Answer(window, now, 5000);
  EXPECT_EQ(window.size(), 128u);
}

TEST(SendWindow, does_not_use_the_whole_pool_while_packets_are_lost) {
  uint64_t now = 0;
  SendWindow window(32, 128, 256, 4);
  for (int i = 0; i < 20; ++i) {
    Answer(window, now, 1000);
    window.OnLoss(now, kRtt);
    EXPECT_LE(window.size(), 128u);
  }
  Answer(window, now, 1300);
  EXPECT_EQ(window.size(), 256u) << "lone losses were not its fault";
}

TEST(SendWindow, never_shrinks_below_its_floor) {
  SendWindow window(8, 64, 64, 2);
  uint64_t now = 0;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 100; ++i) window.OnLoss(now, kRtt);
    for (int i = 0; i < 64; ++i) window.OnAnswer(now, kRtt, 0);
    now += 2 * kRtt;
  }
  EXPECT_EQ(window.size(), 4u);
}

}  // namespace
}  // namespace mlnet::worker
