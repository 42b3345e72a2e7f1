// SPDX-License-Identifier: Apache-2.0
// What must be equal on all ranks, as a number and as a text.
#include "fingerprint.h"

#include <gtest/gtest.h>

#include <set>

namespace mlnet::worker {
namespace {

TEST(Fingerprint, is_the_same_on_all_ranks_and_differs_in_every_field) {
  CollectiveSpec base;
  base.kind = CollectiveKind::kAllReduce;
  base.count = 1000;
  CollectiveSpec same = base;
  same.in = &base;  // buffers, class and deadline are a rank's own affair
  same.traffic_class = 3;
  same.timeout_ns = 1;
  EXPECT_EQ(Fingerprint(base), Fingerprint(same));

  std::set<uint32_t> seen{Fingerprint(base)};
  CollectiveSpec other = base;
  other.count = 1001;
  EXPECT_TRUE(seen.insert(Fingerprint(other)).second);
  other = base;
  other.dtype = DataType::kInt32;
  EXPECT_TRUE(seen.insert(Fingerprint(other)).second);
  other.kind = CollectiveKind::kBroadcast;
  EXPECT_TRUE(seen.insert(Fingerprint(other)).second);
  other.root = 1;
  EXPECT_TRUE(seen.insert(Fingerprint(other)).second);
  other.kind = CollectiveKind::kAllGather;
  EXPECT_TRUE(seen.insert(Fingerprint(other)).second);
  other = base;
  other.wire = WireType::kInt16;
  EXPECT_TRUE(seen.insert(Fingerprint(other)).second);
  other = base;
  other.op = ReduceOp::kMax;
  EXPECT_TRUE(seen.insert(Fingerprint(other)).second);
  EXPECT_FALSE(seen.contains(0));
}

TEST(Fingerprint, neighbouring_sizes_do_not_collide) {
  std::set<uint32_t> seen;
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kAllReduce;
  for (spec.count = 0; spec.count < 20'000; ++spec.count) seen.insert(Fingerprint(spec));
  EXPECT_GE(seen.size(), 19'999u);  // 20,000 of 2^32 collide once in 20 draws
  EXPECT_FALSE(seen.contains(0));
}

TEST(Fingerprint, its_text_says_what_was_called) {
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kAllReduce;
  spec.count = 1000;
  EXPECT_EQ(DescribeSpec(spec), "all_reduce float32 sum count=1000");
  spec.wire = WireType::kInt8;
  EXPECT_EQ(DescribeSpec(spec), "all_reduce float32 sum as int8 count=1000");
  spec.kind = CollectiveKind::kReduce;
  spec.dtype = DataType::kBFloat16;
  spec.op = ReduceOp::kMin;
  spec.wire = WireType::kInt32;
  EXPECT_EQ(DescribeSpec(spec), "reduce bfloat16 min count=1000 root=0");
  spec.kind = CollectiveKind::kBroadcast;
  spec.root = 2;
  EXPECT_EQ(DescribeSpec(spec), "broadcast bytes=1000 root=2");
  spec.kind = CollectiveKind::kBarrier;
  EXPECT_EQ(DescribeSpec(spec), "barrier");
}

}  // namespace
}  // namespace mlnet::worker
