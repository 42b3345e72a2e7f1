// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mlnet::perf {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

json Row(const std::string& name, uint64_t bytes, const json& needs = json::array()) {
  return {{"name", name}, {"bytes", bytes}, {"forward_ns", 1000}, {"backward_ns", 2001}, {"needs", needs}};
}

json Good() { return {{"schema", "mlnet.trace/1"}, {"model", "two"}, {"layers", {Row("a", 40), Row("b", 4004, {0})}}}; }

std::string Refusal(const json& trace) {
  const auto parsed = ParseTrace(trace, "file.json");
  if (parsed) return "";
  EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
  return parsed.error().message;
}

TEST(ParseTrace, TakesLayersInTheirOrder) {
  const auto trace = ParseTrace(Good(), "file.json");
  ASSERT_TRUE(trace) << trace.error().ToString();
  EXPECT_EQ(trace->model, "two");
  ASSERT_EQ(trace->layers.size(), 2u);
  EXPECT_EQ(trace->layers[1].name, "b");
  EXPECT_EQ(trace->layers[1].bytes, 4004u);
  EXPECT_EQ(trace->layers[1].forward_ns, 1000u);
  EXPECT_EQ(trace->layers[1].backward_ns, 2001u);
  EXPECT_THAT(trace->layers[1].needs, ElementsAre(0));
  EXPECT_EQ(trace->Bytes(), 4044u);
  EXPECT_EQ(trace->ComputeNs(), 6002u);
}

TEST(ParseTrace, RefusesWhatIsNoTraceAndSaysWhy) {
  EXPECT_THAT(Refusal(json::value_t::discarded), HasSubstr("file.json: "));
  json other = Good();
  other["schema"] = "mlnet.trace/2";
  EXPECT_THAT(Refusal(other), HasSubstr("schema"));
  json empty = Good();
  empty["layers"] = json::array();
  EXPECT_THAT(Refusal(empty), HasSubstr("no layers"));
  json odd = Good();
  odd["layers"][1]["bytes"] = 4002;
  EXPECT_THAT(Refusal(odd), HasSubstr("layer 'b' has no whole floats"));
  json later = Good();
  later["layers"][1]["needs"] = {1};
  EXPECT_THAT(Refusal(later), HasSubstr("layer 'b' needs one that is not before it"));
  json missing = Good();
  missing["layers"][0].erase("backward_ns");
  EXPECT_THAT(Refusal(missing), HasSubstr("backward_ns"));
}

TEST(Scaled, DividesBytesAndTimesAlikeAndLeavesNoLayerWithout) {
  const Trace scaled = Scaled(*ParseTrace(Good(), "file.json"), 20);
  EXPECT_EQ(scaled.layers[0].bytes, 4u);    // 10 floats / 20: one at least
  EXPECT_EQ(scaled.layers[1].bytes, 200u);  // 1001 floats / 20 = 50.05
  EXPECT_EQ(scaled.layers[1].forward_ns, 50u);
  EXPECT_EQ(scaled.layers[1].backward_ns, 100u);
  EXPECT_THAT(scaled.layers[1].needs, ElementsAre(0));
}

// Parameters of the models as their papers count them: 143.67 M and 25.56 M.
TEST(LoadTrace, TheTracesOfTheRepositoryAreTheModelsTheySay) {
  const std::string folder = MLNET_TRACES;
  const auto vgg = LoadTrace(folder + "/vgg19.json"), resnet = LoadTrace(folder + "/resnet50.json");
  ASSERT_TRUE(vgg) << vgg.error().ToString();
  ASSERT_TRUE(resnet) << resnet.error().ToString();
  EXPECT_EQ(vgg->model, "vgg19");
  EXPECT_EQ(vgg->layers.size(), 19u);
  EXPECT_EQ(vgg->Bytes(), 4 * 143'667'240u);
  EXPECT_EQ(resnet->model, "resnet50");
  EXPECT_EQ(resnet->layers.size(), 54u);
  EXPECT_EQ(resnet->Bytes(), 4 * 25'557'032u);
  for (const Trace& trace : {*vgg, *resnet}) {
    for (const TraceLayer& layer : trace.layers) {
      EXPECT_GT(layer.forward_ns, 0u) << layer.name;
      EXPECT_GT(layer.backward_ns, 0u) << layer.name;
    }
  }
}

TEST(LoadTrace, SaysWhichFileIsNotThere) {
  const auto trace = LoadTrace("/nowhere/there.json");
  ASSERT_FALSE(trace);
  EXPECT_THAT(trace.error().message, HasSubstr("/nowhere/there.json"));
}

}  // namespace
}  // namespace mlnet::perf
