// SPDX-License-Identifier: Apache-2.0
// What a look at a running job gathers: sums next to each other become one row, and the end waits for what ranks still have.
#include "daemon/trace.h"

#include <gtest/gtest.h>

#include "mlnet/wire.h"

namespace mlnet::daemon {
namespace {

using rpc::Json;

mlnet_event Sum(uint64_t seq, uint64_t time_ns, uint64_t lag_ns, uint8_t tree = 0, uint8_t class_stream = 0) {
  mlnet_event event{};
  event.event = MLNET_EV_SUMMED;
  event.tree = tree;
  event.class_stream = class_stream;
  event.seq = seq;
  event.a = lag_ns;
  event.time_ns = time_ns;
  return event;
}

TEST(Trace, sums_next_to_each_other_are_one_row) {
  Trace trace(1, 1'000);
  trace.AddSum(Sum(5, 100, 30));
  trace.AddSum(Sum(6, 110, 20));
  trace.AddSum(Sum(100, 111, 1, 1));  // of another tree, in between
  trace.AddSum(Sum(7, 150, 10));
  trace.AddSum(Sum(9, 160, 10));  // the ring had no room for 8
  trace.End({});
  const Json rows = trace.Take(10, 0)["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0], Json({{"tree", 0}, {"class", 0}, {"stream", 0}, {"first_seq", 5}, {"packets", 3}, {"first_ns", 100}, {"waited_ns", 30}, {"after_ns", {0, 10, 50}}}));
  EXPECT_EQ(rows[1]["first_seq"], 9);
  EXPECT_EQ(rows[2]["tree"], 1);
}

TEST(Trace, class_and_stream_have_rows_of_their_own) {
  Trace trace(1, 1'000);
  trace.AddSum(Sum(0, 10, 0, 0, MLNET_CLASS_STREAM(3, 1)));
  trace.AddSum(Sum(1, 20, 0, 0, MLNET_CLASS_STREAM(3, 0)));
  trace.End({});
  const Json rows = trace.Take(10, 0)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["class"], 3);
  EXPECT_EQ(rows[0]["stream"], 1);
  EXPECT_EQ(rows[1]["stream"], 0);
}

TEST(Trace, a_run_is_cut_so_that_its_times_stay_near) {
  Trace trace(1, 1'000);
  for (uint64_t seq = 0; seq < 40; ++seq) trace.AddSum(Sum(seq, 100 + seq, 0));
  trace.End({});
  const Json rows = trace.Take(10, 0)["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["packets"], 16);
  EXPECT_EQ(rows[2]["packets"], 8);
  EXPECT_EQ(rows[2]["first_ns"], 132);
  EXPECT_EQ(rows[2]["after_ns"].back(), 7);
}

TEST(Trace, is_over_when_the_last_rank_has_told_all) {
  Trace trace(1, 1'000);
  trace.AddRecords(0, {{{"what", "a"}}, {{"what", "b"}}}, false);
  EXPECT_EQ(trace.Take(1, 0), Json({{"rows", {{{"what", "a"}, {"rank", 0}}}}, {"is_over", false}}));
  trace.End({0, 3, 4});
  trace.AddSum(Sum(1, 1, 0));  // a late event of the kernel
  trace.AddRecords(3, Json::array(), true);
  trace.RankGone(4);
  EXPECT_EQ(trace.Take(10, 1'500), Json({{"rows", {{{"what", "b"}, {"rank", 0}}}}, {"is_over", false}}));
  trace.AddRecords(0, {{{"what", "c"}}}, true);
  EXPECT_EQ(trace.Take(1, 1'500)["is_over"], true);
}

TEST(Trace, does_not_wait_for_ever_for_a_rank_that_hangs) {
  Trace trace(1, 1'000);
  trace.End({7});
  EXPECT_FALSE(trace.IsOver(2'999));
  EXPECT_TRUE(trace.IsOver(3'000));
}

TEST(Trace, what_a_rank_sends_is_taken_only_where_it_is_a_row) {
  Trace trace(1, 1'000);
  trace.AddRecords(0, "text", false);
  trace.AddRecords(0, {1, "two", {{"what", "a"}}}, false);
  trace.End({});
  EXPECT_EQ(trace.Take(10, 0)["rows"].size(), 1u);
}

}  // namespace
}  // namespace mlnet::daemon
