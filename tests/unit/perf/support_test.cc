// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mlnet-perf/element_type.h"
#include "perf_support.h"

namespace mlnet::lab {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

perf::Spec Asked(const std::string& dtype, ReduceOp op = ReduceOp::kSum, int world_size = 4) {
  perf::Spec spec;
  spec.dtype = perf::FindType(dtype)->dtype;
  spec.op = op;
  spec.world_size = world_size;
  return spec;
}

/// Of the refusal; empty if there is none.
std::string Refusal(const Contender& contender, const perf::Spec& spec) {
  const auto ok = CheckSupport({{"mlnet"}, contender}, spec);
  if (ok) return "";
  EXPECT_EQ(ok.error().code, ErrorCode::kUnsupported);
  return ok.error().message;
}

TEST(ParseWires, KnowsAllAndNamesThemWhereOneIsNone) {
  EXPECT_THAT(*ParseWires({"int8", "int32", "int16"}),
              ElementsAre(WireType::kInt8, WireType::kInt32, WireType::kInt16));
  const auto wires = ParseWires({"int32", "int4"});
  ASSERT_FALSE(wires);
  EXPECT_EQ(wires.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(wires.error().message, "'int4' is no wire type; there are int32, int16, int8");
}

TEST(CheckSupport, NarrowWiresAreForSumsOfFloatsOfAtMost32Bits) {
  for (const WireType wire : {WireType::kInt16, WireType::kInt8}) {
    for (const char* dtype : {"float32", "float16", "bfloat16"})
      EXPECT_EQ(Refusal({"mlnet", wire}, Asked(dtype)), "") << dtype;
    for (const char* dtype : {"float64", "int8", "uint8", "int16", "int32", "int64"})
      EXPECT_THAT(Refusal({"mlnet", wire}, Asked(dtype)), HasSubstr(std::string("not for sum of ") + dtype));
    EXPECT_THAT(Refusal({"mlnet", wire}, Asked("float32", ReduceOp::kMin)),
                HasSubstr("not for min of float32"));
  }
  for (const std::string& dtype : perf::TypeNames())
    EXPECT_EQ(Refusal({"mlnet"}, Asked(dtype, ReduceOp::kMax, 64)), "") << dtype;
}

TEST(CheckSupport, Int8NeedsLevels) {
  EXPECT_EQ(Refusal({"mlnet", WireType::kInt8}, Asked("float32", ReduceOp::kSum, 16)), "");
  EXPECT_EQ(Refusal({"mlnet", WireType::kInt8}, Asked("float32", ReduceOp::kSum, 17)),
            "wire type int8 leaves too few levels with 17 ranks (more than 16)");
  EXPECT_EQ(Refusal({"mlnet", WireType::kInt16}, Asked("float32", ReduceOp::kSum, 64)), "");
  EXPECT_EQ(Refusal({"mlnet", WireType::kInt16}, Asked("float32", ReduceOp::kSum, 65)),
            "wire type int16 leaves too few levels with 65 ranks (more than 64)");
  EXPECT_EQ(Refusal({"mlnet", WireType::kInt32}, Asked("float32", ReduceOp::kSum, 128)), "");
}

TEST(PlaceHosts, OneRackAfterTheOtherOrOneHostOfEach) {
  const std::vector<Host> workers = {{.name = "a", .rack = "r1"}, {.name = "b", .rack = "r2"}, {.name = "c"},
                                     {.name = "d", .rack = "r1"}, {.name = "e", .rack = "r1"}, {.name = "f", .rack = "r2"}};
  const auto names = [&](const std::string& placement) {
    std::string all;
    for (const Host& host : PlaceHosts(workers, placement)) all += host.name;
    return all;
  };
  EXPECT_EQ(names("racks"), "adebfc");
  EXPECT_EQ(names("interleaved"), "abcdfe");
}

TEST(CheckSupport, NamesThePeerAndTheTypeItLacks) {
  EXPECT_EQ(Refusal({"gloo"}, Asked("bfloat16")), "gloo has no bfloat16");
  EXPECT_EQ(Refusal({"mpi"}, Asked("bfloat16")), "mpi has no bfloat16");
  EXPECT_EQ(Refusal({"mpi"}, Asked("float16")), "mpi has no float16");
  EXPECT_EQ(Refusal({"gloo"}, Asked("float16")), "");
  EXPECT_EQ(Refusal({"gloo-fp16"}, Asked("float32")), "");
  EXPECT_EQ(Refusal({"gloo-fp16"}, Asked("float64")), "gloo-fp16 is for sums of float32, not for sum of float64");
  EXPECT_EQ(Refusal({"gloo-fp16"}, Asked("float32", ReduceOp::kMax)), "gloo-fp16 is for sums of float32, not for max of float32");
  for (const char* dtype : {"float32", "float64", "int32", "int64"}) {
    EXPECT_EQ(Refusal({"gloo"}, Asked(dtype)), "") << dtype;
    EXPECT_EQ(Refusal({"mpi"}, Asked(dtype)), "") << dtype;
  }
}

TEST(CheckSupport, MpisSumsOfNarrowIntegersSaturateAndAreRefused) {
  for (const std::string dtype : {"int8", "uint8", "int16"}) {
    EXPECT_EQ(Refusal({"mpi"}, Asked(dtype)), "mpi saturates sums of " + dtype + " instead of wrapping");
    EXPECT_EQ(Refusal({"mpi"}, Asked(dtype, ReduceOp::kMin)), "");
    EXPECT_EQ(Refusal({"gloo"}, Asked(dtype)), "");
  }
}

TEST(BoundName, IsThatOfTheResultsNotOfTheOption) {
  perf::Spec spec = Asked("float32");
  EXPECT_EQ(BoundName({"mlnet"}, spec), "element");
  EXPECT_EQ(BoundName({"mlnet", WireType::kInt16}, spec), "block");
  EXPECT_EQ(BoundName({"gloo"}, spec), "");
  spec.keeps_small = false;
  EXPECT_EQ(BoundName({"mlnet"}, spec), "block");
  EXPECT_EQ(BoundName({"mlnet"}, Asked("int32")), "");
  EXPECT_EQ(BoundName({"mlnet"}, Asked("float32", ReduceOp::kMin)), "");
}

}  // namespace
}  // namespace mlnet::lab
