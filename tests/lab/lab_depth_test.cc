// SPDX-License-Identifier: Apache-2.0
// Trees of more than two levels with real daemons: right sums, each contribution once at every node, and one partial
// sum per rack over the core.
#include <algorithm>
#include <map>

#include "lab/lab_fixture.h"

namespace mlnet::lab_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Ctl() { return (LabProgram().parent_path() / "mlnetctl").string(); }

Json Perf(const Lab& lab, std::vector<std::string> args) {
  args.insert(args.begin(), {"-j", "--name", lab.name(), "perf", "--check"});
  const Output output = RunLab(args);
  EXPECT_EQ(output.exit_code, 0) << output.err;
  const Json result = Json::parse(output.out, nullptr, false);
  EXPECT_TRUE(result.is_object()) << output.out;
  for (const Json& row : result["rows"]) {
    EXPECT_EQ(row["wrong"], 0) << row.dump();
    EXPECT_EQ(row["summed_in_user_space"], 0) << row.dump();
  }
  return result;
}

struct Node {
  uint64_t seqs = 0;           // sums begun
  uint64_t contributions = 0;  // summed
};

Node NodeOn(const Lab& lab, const std::string& host) {
  const Output stats = lab.Exec(host, {Ctl(), "-j", "stats"});
  const Json json = Json::parse(stats.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << stats.err;
  return {json["verdicts"]["SUM_FIRST"]["count"], json["contributions"]};
}

// By host: contributions per sum, which are its children; and whether it began as many sums as all others.
std::vector<uint64_t> ChildrenByCount(const Lab& lab, const std::vector<std::string>& hosts) {
  std::vector<uint64_t> children;
  const uint64_t seqs = NodeOn(lab, hosts.front()).seqs;
  EXPECT_GT(seqs, 0u);
  for (const std::string& host : hosts) {
    const Node node = NodeOn(lab, host);
    EXPECT_EQ(node.seqs, seqs) << host;
    EXPECT_EQ(node.contributions % node.seqs, 0u) << host << ": some contribution was summed twice or not at all";
    children.push_back(node.contributions / node.seqs);
  }
  std::sort(children.begin(), children.end());
  return children;
}

// Two racks of two hosts with two ranks each. A host sums 2 ranks, the head of the other rack its own 2 ranks and a host,
// the root its own 2 ranks, a host and that head: three sums on the way of a rank.
TEST(Depth, three_levels_sum_each_contribution_once_under_faults_on_every_link) {
  const Lab lab({"--workers", "4", "--aggregators", "0", "--racks", "2", "--loss", "1", "--dup", "1", "--reorder", "1", "--seed", "5"});
  lab.Fault({"set", "all", "--loss", "1", "--dup", "1", "--reorder", "1", "--seed", "5"});  // the racks' links, too
  const Json result = Perf(lab, {"--shape", "rack", "--ranks-per-host", "2", "--counts", "1,4096,200003", "--iters", "2", "--warmup", "0"});
  uint64_t retransmits = 0;
  for (const Json& row : result["rows"]) retransmits += row["retransmits"].get<uint64_t>();
  EXPECT_GT(retransmits, 0u) << "the faults did not bite";
  EXPECT_THAT(ChildrenByCount(lab, {"w1", "w2", "w3", "w4"}), ElementsAre(2, 2, 3, 4));
}

TEST(Depth, three_levels_are_exact_under_faults_with_ipv6_alone) {
  const Lab lab({"--workers", "4", "--aggregators", "0", "--racks", "2", "--loss", "1", "--dup", "1", "--reorder", "1", "--seed", "6", "--ipv6"});
  lab.Fault({"set", "all", "--loss", "1", "--dup", "1", "--reorder", "1", "--seed", "6"});
  Perf(lab, {"--shape", "rack", "--ranks-per-host", "2", "--counts", "1,4096,100003", "--iters", "1", "--warmup", "0"});
  EXPECT_THAT(ChildrenByCount(lab, {"w1", "w2", "w3", "w4"}), ElementsAre(2, 2, 3, 4));
}

// One rank a host: w1 is the root, the others a binary tree below it.
TEST(Depth, a_worker_below_another_is_not_the_aggregators_child) {
  const Lab lab({"--workers", "5", "--aggregators", "1", "--loss", "1"});
  Perf(lab, {"--shape", "degree", "--multicast", "off", "--counts", "4096,100003", "--iters", "2", "--warmup", "0"});
  const Node root = NodeOn(lab, "a1");
  EXPECT_EQ(root.contributions, root.seqs * 4) << "the planner's degree is 4: one worker is below another";
}

TEST(Depth, binary_tree_without_multicast_passes_results_down) {
  const Lab lab({"--workers", "6", "--aggregators", "0"});
  Perf(lab, {"--shape", "binary", "--multicast", "off", "--counts", "1,4096,100003", "--iters", "2", "--warmup", "0"});
  uint64_t sums = 0, contributions = 0, seqs = 0;
  for (const std::string host : {"w1", "w2", "w3", "w4", "w5", "w6"}) {
    const Node node = NodeOn(lab, host);
    if (node.seqs == 0) continue;
    ++sums;
    seqs = node.seqs;
    contributions += node.contributions;
    EXPECT_LE(node.contributions / node.seqs, 3u) << host << ": its own rank and two others";
  }
  EXPECT_GE(sums, 2u);
  // Every rank's contribution, and one partial sum of each node but the root.
  EXPECT_EQ(contributions, seqs * (6 + sums - 1));
}

// More ranks than a node has children.
TEST(Depth, world_of_128_ranks_sums_through_the_hosts) {
  const Lab lab({"--workers", "8", "--aggregators", "0", "--racks", "2"});
  const Json result = Perf(lab, {"--shape", "rack", "--ranks-per-host", "16", "--counts", "100003", "--iters", "1", "--warmup", "0"});
  EXPECT_EQ(result["rows"][0]["ranks"], 128);
  // Six hosts of 16 ranks each; the other rack's head with three hosts below it; the root with those and that head.
  EXPECT_THAT(ChildrenByCount(lab, {"w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8"}), ElementsAre(16, 16, 16, 16, 16, 16, 19, 20));
}

TEST(Depth, planner_in_the_daemon_takes_racks_and_rates_from_the_lab) {
  const Lab lab({"--workers", "4", "--aggregators", "0", "--racks", "2", "--rate", "200mbit", "--oversubscription", "4"});
  const Output plan = lab.Exec("w1", {Ctl(), "plan"});
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("* rack "));
  EXPECT_EQ(plan.err, "");
  const Json result = Perf(lab, {"--counts", "500003", "--iters", "2", "--warmup", "1", "--wire", "int32", "--bound", "block"});
  // What the racks send into the core: the one its partial sums, the one with the root the results, 352 elements a frame.
  const double contribution = (500003 + 351) / 352 * 1514;
  const double core = result["rows"][0].at("core_bytes");
  EXPECT_GT(core, 2 * contribution);
  EXPECT_LT(core, 2.5 * contribution) << "probes and retries are little; with a star it would be three and more";
}

}  // namespace
}  // namespace mlnet::lab_test
