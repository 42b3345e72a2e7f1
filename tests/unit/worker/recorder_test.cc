// SPDX-License-Identifier: Apache-2.0
// What the timeline of `mlnetctl trace` is made of.
#include "recorder.h"

#include <gtest/gtest.h>

namespace mlnet::worker {
namespace {

TraceRecord Named(std::string what) {
  TraceRecord record;
  record.what = std::move(what);
  return record;
}

TEST(Recorder, gives_the_oldest_first_and_each_once) {
  Recorder recorder;
  for (const char* what : {"a", "b", "c"}) recorder.Add(Named(what));
  auto some = recorder.Take(2);
  ASSERT_EQ(some.size(), 2u);
  EXPECT_EQ(some[0].what + some[1].what, "ab");
  EXPECT_FALSE(recorder.IsEmpty());
  some = recorder.Take(2);
  ASSERT_EQ(some.size(), 1u);
  EXPECT_EQ(some[0].what, "c");
  EXPECT_TRUE(recorder.IsEmpty());
}

// A turn's time is read where it begins, and results that come meanwhile are taken in the same turn.
TEST(Recorder, a_collective_does_not_end_before_its_last_result) {
  TraceRecord record;
  record.received_ns = 1'700;
  record.done_ns = 1'500;
  EXPECT_EQ(record.EndNs(), 1'700u);
  record.done_ns = 2'100;
  EXPECT_EQ(record.EndNs(), 2'100u);
}

}  // namespace
}  // namespace mlnet::worker
