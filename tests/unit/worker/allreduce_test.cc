// SPDX-License-Identifier: Apache-2.0
// Stage 0: calls that can never work are refused by naming the argument.
#include "allreduce.h"

#include <gtest/gtest.h>

namespace mlnet::worker {
namespace {

std::string ErrorOf(const Result<CollectiveSpec>& spec) {
  return spec ? "no error" : spec.error().ToString();
}

TEST(Calls, equal_buffers_are_in_place_and_others_must_not_overlap) {
  std::vector<float> x(100);
  EXPECT_TRUE(AllReduceSpec(x.data(), x.data(), 100, DataType::kFloat32, ReduceOp::kSum, {}));
  EXPECT_TRUE(AllReduceSpec(x.data(), x.data() + 50, 50, DataType::kFloat32, ReduceOp::kSum, {}));
  EXPECT_NE(ErrorOf(AllReduceSpec(x.data(), x.data() + 1, 50, DataType::kFloat32, ReduceOp::kSum, {}))
                .find("overlap"),
            std::string::npos);
}

TEST(Calls, null_buffers_are_for_empty_tensors_only) {
  EXPECT_TRUE(AllReduceSpec(nullptr, nullptr, 0, DataType::kInt32, ReduceOp::kSum, {}));
  EXPECT_NE(ErrorOf(AllReduceSpec(nullptr, nullptr, 1, DataType::kInt32, ReduceOp::kSum, {})).find("null"),
            std::string::npos);
}

TEST(Calls, class_root_and_dtype_are_checked) {
  float x = 0;
  EXPECT_NE(ErrorOf(BarrierSpec({.traffic_class = 8})).find("traffic class 8"), std::string::npos);
  EXPECT_NE(ErrorOf(BroadcastSpec(&x, 4, 4, 4, {})).find("root 4"), std::string::npos);
  EXPECT_NE(ErrorOf(BroadcastSpec(&x, 4, -1, 4, {})).find("root -1"), std::string::npos);
  EXPECT_NE(
      ErrorOf(AllReduceSpec(&x, &x, 1, static_cast<DataType>(9), ReduceOp::kSum, {})).find("E_UNSUPPORTED"),
      std::string::npos);
}

TEST(Calls, all_gather_takes_its_input_in_place_at_the_ranks_own_place_only) {
  std::vector<uint8_t> x(40);
  EXPECT_TRUE(AllGatherSpec(x.data() + 10, x.data(), 10, 1, 4, {}));
  EXPECT_FALSE(AllGatherSpec(x.data() + 20, x.data(), 10, 1, 4, {}));
}

}  // namespace
}  // namespace mlnet::worker
