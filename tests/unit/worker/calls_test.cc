// SPDX-License-Identifier: Apache-2.0
// Stage 0: calls that can never work are refused by naming the argument.
#include "calls.h"

#include <gtest/gtest.h>

#include <vector>

namespace mlnet::worker {
namespace {

constexpr Caller kCaller{1, 4};

std::string ErrorOf(const Result<CollectiveSpec>& spec) { return spec ? "no error" : spec.error().ToString(); }

Result<CollectiveSpec> Sum(const void* in, void* out, size_t count, DataType dtype = DataType::kFloat32,
                           const CallOptions& options = {}) {
  return ReductionSpec(CollectiveKind::kAllReduce, kCaller, in, out, count, dtype, ReduceOp::kSum, 0, options);
}

void ExpectRefused(const Result<CollectiveSpec>& spec, const std::string& part) {
  EXPECT_NE(ErrorOf(spec).find(part), std::string::npos) << ErrorOf(spec);
}

TEST(Calls, equal_buffers_are_in_place_and_others_must_not_overlap) {
  std::vector<float> x(100);
  EXPECT_TRUE(Sum(x.data(), x.data(), 100));
  EXPECT_TRUE(Sum(x.data(), x.data() + 50, 50));
  ExpectRefused(Sum(x.data(), x.data() + 1, 50), "overlap");
}

TEST(Calls, null_buffers_are_for_empty_tensors_only) {
  EXPECT_TRUE(Sum(nullptr, nullptr, 0));
  ExpectRefused(Sum(nullptr, nullptr, 1), "null");
}

TEST(Calls, class_root_and_dtype_are_checked) {
  float x = 0;
  ExpectRefused(BarrierSpec({.traffic_class = 8}), "traffic class 8");
  ExpectRefused(BroadcastSpec(kCaller, &x, 4, 4, {}), "root 4");
  ExpectRefused(BroadcastSpec(kCaller, &x, 4, -1, {}), "root -1");
  ExpectRefused(GatherSpec(kCaller, &x, nullptr, 4, 9, {}), "root 9");
  ExpectRefused(Sum(&x, &x, 1, static_cast<DataType>(99)), "E_UNSUPPORTED");
}

TEST(Calls, bits_of_floats_are_refused_by_name) {
  float x = 0;
  for (ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
    const auto spec = ReductionSpec(CollectiveKind::kAllReduce, kCaller, &x, &x, 1, DataType::kFloat32, op, 0, {});
    ExpectRefused(spec, std::string(NameOf(op)) + " of float32 is not supported");
  }
}

TEST(Calls, narrow_wire_types_are_for_float_sums_and_enough_levels) {
  std::vector<float> x(8), residual(8);
  EXPECT_TRUE(Sum(x.data(), x.data(), 8, DataType::kFloat32,
                  {.wire = WireType::kInt8, .residual = residual.data()}));
  ExpectRefused(Sum(x.data(), x.data(), 4, DataType::kFloat64, {.wire = WireType::kInt16}), "float64");
  ExpectRefused(Sum(x.data(), x.data(), 8, DataType::kInt32, {.wire = WireType::kInt8}), "int32");
  ExpectRefused(Sum(x.data(), x.data(), 8, DataType::kFloat16,
                    {.wire = WireType::kInt8, .residual = residual.data()}),
                "residual belongs to sums of float32, not to sum of float16");
  const auto with = [&](int n, WireType wire) {
    return ReductionSpec(CollectiveKind::kAllReduce, {0, n}, x.data(), x.data(), 8, DataType::kFloat32,
                         ReduceOp::kSum, 0, {.wire = wire});
  };
  EXPECT_TRUE(with(16, WireType::kInt8));
  ExpectRefused(with(17, WireType::kInt8), "too few levels with 17 ranks (more than 16) (use int16, or join with widens_lanes)");
  EXPECT_TRUE(with(64, WireType::kInt16));
  ExpectRefused(with(65, WireType::kInt16), "too few levels with 65 ranks (more than 64) (use int32, or join with widens_lanes)");
  ExpectRefused(with(65, WireType::kInt8), "(more than 16) (use int32, or");
}

TEST(Calls, a_job_may_ask_for_wider_lanes_instead_of_an_error) {
  std::vector<float> x(8);
  const auto wire_of = [&](int n, WireType wire) {
    return ReductionSpec(CollectiveKind::kAllReduce, {0, n, true}, x.data(), x.data(), 8, DataType::kFloat32,
                         ReduceOp::kSum, 0, {.wire = wire})->wire;
  };
  EXPECT_EQ(wire_of(16, WireType::kInt8), WireType::kInt8);
  EXPECT_EQ(wire_of(17, WireType::kInt8), WireType::kInt16);
  EXPECT_EQ(wire_of(64, WireType::kInt16), WireType::kInt16);
  EXPECT_EQ(wire_of(65, WireType::kInt16), WireType::kInt32);
  EXPECT_EQ(wire_of(65, WireType::kInt8), WireType::kInt32);
}

TEST(Calls, all_gather_takes_its_input_in_place_at_the_ranks_own_place_only) {
  std::vector<uint8_t> x(40);
  EXPECT_TRUE(AllGatherSpec(kCaller, x.data() + 10, x.data(), 10, {}));
  ExpectRefused(AllGatherSpec(kCaller, x.data() + 20, x.data(), 10, {}), "overlap");
}

TEST(Calls, a_rank_that_gets_nothing_needs_no_output) {
  std::vector<float> x(8);
  const auto reduce = ReductionSpec(CollectiveKind::kReduce, kCaller, x.data(), nullptr, 8, DataType::kFloat32,
                                    ReduceOp::kSum, 0, {});
  ASSERT_TRUE(reduce) << ErrorOf(reduce);
  EXPECT_EQ(reduce->keep_count, 0u);
  EXPECT_TRUE(GatherSpec(kCaller, x.data(), nullptr, 32, 0, {}));
  ExpectRefused(GatherSpec(kCaller, x.data(), nullptr, 32, 1, {}), "null");
  EXPECT_TRUE(ScatterSpec(kCaller, nullptr, x.data(), 8, 0, {}));
  ExpectRefused(ScatterSpec(kCaller, nullptr, x.data(), 8, 1, {}), "null");
}

TEST(Calls, reduce_scatter_keeps_the_ranks_own_part) {
  std::vector<float> in(40), out(10);
  const auto spec = ReductionSpec(CollectiveKind::kReduceScatter, kCaller, in.data(), out.data(), 40,
                                  DataType::kFloat32, ReduceOp::kSum, 0, {});
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->keep_first, 10u);
  EXPECT_EQ(spec->keep_count, 10u);
}

}  // namespace
}  // namespace mlnet::worker
