// SPDX-License-Identifier: Apache-2.0
// Stage 1 and the fingerprint.
#include "partition.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "fingerprint.h"
#include "mlnet/wire.h"

namespace mlnet::worker {
namespace {

CollectiveSpec AnySpec() {
  CollectiveSpec spec;
  spec.kind = *rc::gen::element(CollectiveKind::kAllReduce, CollectiveKind::kBroadcast,
                                CollectiveKind::kAllGather, CollectiveKind::kBarrier);
  spec.dtype = *rc::gen::element(DataType::kFloat32, DataType::kInt32);
  spec.count = spec.kind == CollectiveKind::kBarrier ? 0 : *rc::gen::inRange<size_t>(0, 2'000'000);
  return spec;
}

RC_GTEST_PROP(Partition, pieces_cover_every_unit_of_every_owner_once_in_whole_blocks, ()) {
  const CollectiveSpec spec = AnySpec();
  const int n = *rc::gen::inRange(1, 65);
  const auto blocks = *rc::gen::inRange<uint32_t>(4, MLNET_BLOCKS_MAX + 1);
  const Plan plan = Partition(spec, {blocks, 256, n});
  std::vector<uint64_t> covered(static_cast<size_t>(n));  // units so far, by owner
  for (uint64_t i = 0; i < plan.packets; ++i) {
    const Piece piece = PieceOf(spec, plan, n, i);
    uint64_t& next = covered[piece.owner < 0 ? 0 : static_cast<size_t>(piece.owner)];
    RC_ASSERT(piece.count == 0 || piece.offset == next);
    next += piece.count;
    RC_ASSERT(piece.words % MLNET_BLOCK_WORDS == 0);
    RC_ASSERT(piece.words <= blocks * MLNET_BLOCK_WORDS);
    const uint64_t bytes = uint64_t{piece.count} * plan.unit_bytes;
    RC_ASSERT(piece.words * 8ULL >= bytes && piece.words * 8ULL < bytes + MLNET_BLOCK_BYTES);
  }
  const size_t owners =
      spec.kind == CollectiveKind::kAllGather && spec.count > 0 ? static_cast<size_t>(n) : 1;
  for (size_t owner = 0; owner < owners && spec.kind != CollectiveKind::kBroadcast; ++owner) {
    RC_ASSERT(covered[owner] == spec.count);
  }
  RC_ASSERT(plan.packets >= 1u);
}

RC_GTEST_PROP(Partition, probes_cover_the_first_pool_of_a_float_collective, ()) {
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kAllReduce;
  spec.count = *rc::gen::inRange<size_t>(1, 1'000'000);
  const uint32_t slots = 1U << *rc::gen::inRange(0, 12);
  const Plan plan = Partition(spec, {MLNET_BLOCKS_MAX, slots, 4});
  const uint64_t packets = (spec.count + 351) / 352;
  const uint64_t covered = std::min<uint64_t>(packets, slots);
  RC_ASSERT(plan.packets == packets);
  RC_ASSERT(plan.probes == (covered + 63) / 64);
  uint64_t words = 0;
  for (uint32_t p = 0; p < plan.probes; ++p) words += ProbeWords(plan, p);
  RC_ASSERT(words * 8 >= covered * MLNET_EXPS_BYTES);
  RC_ASSERT(words * 8 < covered * MLNET_EXPS_BYTES + 128ULL * plan.probes);
}

TEST(Partition, integers_and_raw_bytes_have_no_probes) {
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kAllReduce;
  spec.dtype = DataType::kInt32;
  spec.count = 1000;
  EXPECT_EQ(Partition(spec, {11, 256, 2}).probes, 0u);
  spec.kind = CollectiveKind::kBroadcast;
  spec.dtype = DataType::kFloat32;
  EXPECT_EQ(Partition(spec, {11, 256, 2}).probes, 0u);
}

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
  spec.kind = CollectiveKind::kBroadcast;
  spec.root = 2;
  EXPECT_EQ(DescribeSpec(spec), "broadcast bytes=1000 root=2");
  spec.kind = CollectiveKind::kBarrier;
  EXPECT_EQ(DescribeSpec(spec), "barrier");
}

}  // namespace
}  // namespace mlnet::worker
