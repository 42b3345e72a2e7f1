// SPDX-License-Identifier: Apache-2.0
#include "send_window.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace mlnet::worker {
namespace {

constexpr uint64_t kRtt = 1000;

// Answers `count` packets of a window that is always full, spread over one round trip each window.
void Answer(SendWindow& window, uint64_t& now, int count) {
  for (int i = 0; i < count; ++i) {
    window.OnAnswer(now, kRtt, 0, window.size());
    now += kRtt / window.size();
  }
}

TEST(SendWindow, starts_at_the_first_window_and_never_exceeds_the_most) {
  uint64_t now = kRtt;
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
  for (uint64_t i = 0; i < 1000; ++i) window.OnAnswer(i * 10, kRtt, 0, 5);
  EXPECT_EQ(window.size(), 32u);
}

TEST(SendWindow, lone_losses_are_tolerated) {
  uint64_t now = kRtt;
  SendWindow window(64, 64, 64, 4);
  for (int i = 0; i < 100; ++i) {
    Answer(window, now, 19);
    window.OnLoss(now, kRtt, now - kRtt / 2, false);  // 5 %: what 1 % on each hop of four ranks looks like
  }
  EXPECT_EQ(window.size(), 64u);
}

TEST(SendWindow, a_burst_of_losses_halves_once_then_growth_is_slow) {
  uint64_t now = kRtt;
  SendWindow window(64, 64, 64, 4);
  Answer(window, now, 64);
  const uint64_t sent_ns = now - kRtt / 2;
  for (int i = 0; i < 60; ++i) window.OnLoss(now + static_cast<uint64_t>(i), kRtt, sent_ns, false);
  EXPECT_EQ(window.size(), 32u);  // all were sent before it was known
  now += 2 * kRtt;
  Answer(window, now, 33);
  EXPECT_EQ(window.size(), 33u);  // one packet a round trip from here
}

// An incast: what was sent since is lost, too.
TEST(SendWindow, losses_of_what_was_sent_since_halve_again) {
  SendWindow window(64, 64, 64, 4);
  uint64_t now = 1'000;
  for (const uint32_t size : {32U, 16U, 8U, 4U, 4U}) {
    const uint64_t sent_ns = now;
    for (int i = 0; i < 60; ++i) window.OnLoss(now + kRtt / 2, kRtt, sent_ns, false);
    now += kRtt;
    EXPECT_EQ(window.size(), size);
  }
}

TEST(SendWindow, a_limit_holds_at_once_and_what_it_held_back_grows_again) {
  uint64_t now = kRtt;
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

TEST(SendWindow, what_comes_late_counts_again_when_all_ranks_have_heard) {
  uint64_t now = kRtt;
  SendWindow window(64, 64, 64, 4);
  window.IgnoreLateUntil(1000 * kRtt);
  Answer(window, now, 64);
  for (int i = 0; i < 60; ++i) window.OnLoss(now, kRtt, now - kRtt / 2, true);
  EXPECT_EQ(window.size(), 64u);
  now = 1000 * kRtt;
  Answer(window, now, 64);
  for (int i = 0; i < 60; ++i) window.OnLoss(now, kRtt, now - kRtt / 2, true);
  EXPECT_EQ(window.size(), 32u);
}

// It would grow for half a second into a queue that has overflowed.
TEST(SendWindow, what_was_overtaken_counts_whoever_has_heard) {
  uint64_t now = kRtt;
  SendWindow window(64, 64, 64, 4);
  window.IgnoreLateUntil(1000 * kRtt);
  Answer(window, now, 64);
  for (int i = 0; i < 60; ++i) window.OnLoss(now, kRtt, now - kRtt / 2, false);
  EXPECT_EQ(window.size(), 32u);
}

TEST(SendWindow, uses_the_whole_pool_where_nothing_was_lost_for_long) {
  uint64_t now = kRtt;
  SendWindow window(32, 128, 256, 4);
  Answer(window, now, 1000);
  EXPECT_EQ(window.size(), 128u);
  Answer(window, now, 300);
  EXPECT_EQ(window.size(), 256u);
  Answer(window, now, 1000);
  EXPECT_EQ(window.size(), 256u);
}

TEST(SendWindow, one_loss_beyond_its_ordinary_bound_takes_it_back_for_good) {
  uint64_t now = kRtt;
  SendWindow window(32, 128, 256, 4);
  Answer(window, now, 1300);
  window.OnLoss(now, kRtt, now - kRtt / 2, false);
  EXPECT_EQ(window.size(), 128u);
  Answer(window, now, 5000);
  EXPECT_EQ(window.size(), 128u);
}

TEST(SendWindow, does_not_use_the_whole_pool_while_packets_are_lost) {
  uint64_t now = kRtt;
  SendWindow window(32, 128, 256, 4);
  for (int i = 0; i < 20; ++i) {
    Answer(window, now, 1000);
    window.OnLoss(now, kRtt, now - kRtt / 2, false);
    EXPECT_LE(window.size(), 128u);
  }
  Answer(window, now, 1300);
  EXPECT_EQ(window.size(), 256u) << "lone losses were not its fault";
}

TEST(SendWindow, does_not_double_again_after_losses_however_long_ago) {
  uint64_t now = kRtt;
  SendWindow window(64, 128, 256, 4);
  Answer(window, now, 64);
  for (int i = 0; i < 60; ++i) window.OnLoss(now, kRtt, now - kRtt / 2, false);
  ASSERT_EQ(window.size(), 64u);
  for (int i = 0; i < 20; ++i) Answer(window, now, static_cast<int>(window.size()));
  EXPECT_NEAR(window.size(), 84, 1);
  for (int i = 0; i < 100; ++i) Answer(window, now, static_cast<int>(window.size()));
  EXPECT_NEAR(window.size(), 184, 2) << "more than half of the pool: nothing was lost since";
}

TEST(SendWindow, never_shrinks_below_its_floor) {
  SendWindow window(8, 64, 64, 2);
  uint64_t now = kRtt;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 100; ++i) window.OnLoss(now, kRtt, now - kRtt / 2, false);
    for (int i = 0; i < 64; ++i) window.OnAnswer(now, kRtt, 0, 0);
    now += 2 * kRtt;
  }
  EXPECT_EQ(window.size(), 4u);
}

// `count` round trips of a window that is always full, in which one answer of `of` has a mark.
void AnswerMarked(SendWindow& window, uint64_t& now, uint64_t count, uint64_t of) {
  constexpr uint64_t kLongRtt = 1'000'000;  // divisible by any window
  uint64_t answers = 0;
  for (const uint64_t end = now + count * kLongRtt; now < end; now += kLongRtt / window.size()) {
    if (answers++ % of == 0) window.OnMark(now, kLongRtt);
    window.OnAnswer(now, kLongRtt, 0, window.size());
  }
}

TEST(SendWindow, the_first_mark_halves_and_ends_slow_start) {
  uint64_t now = kRtt;
  SendWindow window(64, 1024, 1024, 4);
  window.OnMark(now, kRtt);
  EXPECT_EQ(window.size(), 32u);
  window.OnMark(now + kRtt / 2, kRtt);  // of the same round trip: no news
  EXPECT_EQ(window.size(), 32u);
  now += 10 * kRtt;
  Answer(window, now, 32);
  EXPECT_EQ(window.size(), 32u);  // by about one packet a round trip
  Answer(window, now, 32);
  EXPECT_EQ(window.size(), 33u);
}

// RFC 8257: where one answer of ten is marked, the window loses half of a tenth each round trip; where all are, half.
TEST(SendWindow, marks_take_half_of_their_share) {
  uint64_t now = kRtt;
  SendWindow window(1024, 1024, 1024, 4);
  AnswerMarked(window, now, 1'000, 10);
  EXPECT_NEAR(window.size(), 20, 6);  // where the loss of a twentieth and the growth by one meet
  AnswerMarked(window, now, 1'000, 1);
  EXPECT_NEAR(window.size(), 5, 1);  // the floor, and the growth by one
}

TEST(SendWindow, grows_no_further_while_its_packets_wait_in_a_queue) {
  SendWindow window(32, 128, 128, 4);
  for (uint64_t i = 0; i < 1000; ++i) window.OnAnswer(i * 10, 30'000'000, 21'000'000, window.size());
  EXPECT_EQ(window.size(), 32u);
  for (uint64_t i = 0; i < 1000; ++i) window.OnAnswer(i * 10, 30'000'000, 19'000'000, window.size());
  EXPECT_EQ(window.size(), 128u);
}

}  // namespace
}  // namespace mlnet::worker
