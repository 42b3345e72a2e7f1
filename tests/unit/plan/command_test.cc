// SPDX-License-Identifier: Apache-2.0
// mlnetctl plan, from the topology file to what is printed. No daemon.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "mlnetctl/cli.h"
#include "unit/temp_folder.h"

namespace mlnet::ctl {
namespace {

class PlanCommand : public testing::Test {
 protected:
  int Run(const std::string& topology, std::vector<std::string> args = {}) {
    std::ofstream(file_) << topology;
    args.insert(args.begin(), {"plan", "--topology", file_});
    std::ostringstream out, err;
    const int code = RunCli(args, out, err, {});
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  nlohmann::json Json(const std::string& topology, std::vector<std::string> args = {}) {
    args.emplace_back("-j");
    EXPECT_EQ(Run(topology, args), 0) << err_;
    return nlohmann::json::parse(out_);
  }

  test::TempFolder folder_;
  std::string file_ = folder_ / "topology.yaml";
  std::string out_, err_;
};

constexpr const char* kFour =
    "defaults: {rate: 500mbit}\nhosts: [{name: w1}, {name: w2}, {name: w3}, {name: w4}]\n";
constexpr const char* kRacks =
    "defaults: {rate: 1gbit}\ncore: {oversubscription: 2}\nracks: [{name: r2, up: 3gbit, down: 300mbit}]\n"
    "hosts: [{name: a, rack: r1}, {name: b, rack: r1}, {name: c, rack: r2}, {name: d, rack: r2}]\n";

double RateOf(const nlohmann::json& plan, const std::string& name) {
  for (const auto& link : plan["candidates"][0]["predicted"]["links"]) {
    if (link["link"] == name) return link["rate_bps"];
  }
  return -1;
}

TEST_F(PlanCommand, PrintsATable) {
  EXPECT_EQ(Run(kFour), 0) << err_;
  EXPECT_NE(out_.find("* workers"), std::string::npos) << out_;
  EXPECT_NE(out_.find("1.73 s"), std::string::npos) << out_;  // 1.5 * 1.15457
  EXPECT_EQ(err_, "");
}

TEST_F(PlanCommand, ReadsTheExampleOfTheLab) {
  std::ifstream example(MLNET_TOPOLOGY_EXAMPLE);
  std::stringstream text;
  text << example.rdbuf();
  const auto plan = Json(text.str());
  EXPECT_EQ(plan["world_size"], 4);
  EXPECT_EQ(RateOf(plan, "w4 up"), 250e6);
  EXPECT_EQ(RateOf(plan, "a1 down"), 2e9);
  EXPECT_EQ(RateOf(plan, "rack r1 up"), 500e6);
  EXPECT_EQ(RateOf(plan, "rack r2 down"), 400e6);
}

TEST_F(PlanCommand, ReadsRacksAndCore) {
  const auto plan = Json(kRacks);
  EXPECT_EQ(RateOf(plan, "rack r1 up"), 1e9);
  EXPECT_EQ(RateOf(plan, "rack r2 up"), 3e9);
  EXPECT_EQ(RateOf(plan, "rack r2 down"), 3e8);
}

TEST_F(PlanCommand, TakesJobAndShapeFromFlags) {
  const auto plan = Json(kFour, {"--bytes", "1M", "--wire", "int16", "--ranks-per-host", "8", "--shape", "degree",
                                 "--degree", "3", "--unicast"});
  EXPECT_EQ(plan["world_size"], 32);
  EXPECT_EQ(plan["bytes"], 1 << 20);
  EXPECT_EQ(plan["lane_bits"], 16);
  EXPECT_EQ(plan["multicast"], false);
  EXPECT_EQ(plan["chosen"], "degree");
  EXPECT_EQ(plan["trees"][0]["nodes"][0]["children"].size(), 3u);
  EXPECT_EQ(plan["trees"][0]["nodes"][0]["ranks"], 8);
}

TEST_F(PlanCommand, PrintsAGraph) {
  EXPECT_EQ(Run(kFour, {"--dot"}), 0) << err_;
  EXPECT_EQ(out_.rfind("digraph plan {", 0), 0u) << out_;
}

TEST_F(PlanCommand, NamesWhatIsWrongWithTheFile) {
  EXPECT_EQ(Run("hosts: [{name: w1, speed: 1gbit}]"), 2);
  EXPECT_NE(err_.find("hosts[0]: unknown key 'speed'"), std::string::npos) << err_;
  EXPECT_EQ(Run("hosts: [{name: w1, rate: fast}]"), 2);
  EXPECT_NE(err_.find("hosts[0].rate"), std::string::npos) << err_;
  EXPECT_EQ(Run("hosts: [{name: w1}]\nracks: [{rate: 1gbit}]"), 2);
  EXPECT_NE(err_.find("racks[0]: name is missing"), std::string::npos) << err_;
  EXPECT_EQ(Run("hosts: {"), 2);
  EXPECT_EQ(Run("hosts: 3"), 2);
  EXPECT_EQ(Run("[1, 2]"), 2);
  EXPECT_EQ(Run("hosts: [{name: a1, role: aggregator}]"), 2);
  EXPECT_NE(err_.find("no ranks"), std::string::npos) << err_;
}

TEST_F(PlanCommand, NamesAMissingFile) {
  std::ostringstream out, err;
  EXPECT_EQ(RunCli({"plan", "--topology", folder_ / "none.yaml"}, out, err, {}), 2);
  EXPECT_NE(err.str().find("cannot read topology file"), std::string::npos) << err.str();
}

TEST_F(PlanCommand, RefusesWhatTheWireCannotCarry) {
  EXPECT_EQ(Run(kFour, {"--wire", "int8", "--ranks-per-host", "5"}), 5);
  EXPECT_NE(err_.find("int8 leaves too few levels with 20 ranks"), std::string::npos) << err_;
  EXPECT_EQ(Run(kFour, {"--shape", "shards"}), 5);
  EXPECT_EQ(Run(kFour, {"--bytes", "1K:4M"}), 2);
  EXPECT_EQ(Run(kFour, {"--shape", "ring"}), 2);
}

}  // namespace
}  // namespace mlnet::ctl
