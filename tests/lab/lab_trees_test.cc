// SPDX-License-Identifier: Apache-2.0
// Several trees per job with real daemons: who sums, what goes over the NICs, and that the sums are right.
#include <cstdlib>

#include "lab/lab_fixture.h"

namespace mlnet::lab_test {
namespace {

using testing::HasSubstr;

Json Perf(const Lab& lab, std::vector<std::string> args) {
  args.insert(args.begin(), {"-j", "--name", lab.name(), "perf", "--check"});
  const Output output = RunLab(args);
  EXPECT_EQ(output.exit_code, 0) << output.err;
  const Json result = Json::parse(output.out, nullptr, false);
  EXPECT_TRUE(result.is_object()) << output.out;
  for (const Json& row : result["rows"]) {
    EXPECT_EQ(row["wrong"], 0) << row.dump();
    EXPECT_EQ(row["summed_in_user_space"], 0) << row.dump();
    EXPECT_GT(row["summed_in_kernel"].get<uint64_t>(), 0u) << row.dump();
  }
  return result;
}

Json Stats(const Lab& lab, const std::string& host) {
  const Output stats = lab.Exec(host, {(LabProgram().parent_path() / "mlnetctl").string(), "-j", "stats"});
  const Json json = Json::parse(stats.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << stats.err;
  return json;
}

uint64_t SentPackets(const Lab& lab, const std::string& host) {
  const Output link = lab.Exec(host, {"ip", "-s", "-j", "link", "show", "eth0"});
  return Json::parse(link.out).at(0).at("stats64").at("tx").at("packets");
}

TEST(Trees, hosts_of_the_ranks_sum_for_each_other_when_there_is_no_other) {
  const Lab lab({"--workers", "3", "--aggregators", "0"});
  Perf(lab, {"--counts", "1,353,4096,500003", "--iters", "2", "--warmup", "0"});
  uint64_t least = UINT64_MAX, most = 0;
  for (const std::string host : {"w1", "w2", "w3"}) {
    const uint64_t contributions = Stats(lab, host)["contributions"];
    least = std::min(least, contributions);
    most = std::max(most, contributions);
  }
  EXPECT_GT(least, 0u);
  EXPECT_LT(most, least * 3 / 2) << "equal shares of the large call";
}

TEST(Trees, they_do_so_under_loss_duplication_and_reordering) {
  const Lab lab({"--workers", "3", "--aggregators", "0", "--loss", "1", "--dup", "1", "--reorder", "1"});
  const Json result = Perf(lab, {"--counts", "1,4096,200003", "--iters", "3", "--warmup", "0", "--ranks-per-host", "2"});
  uint64_t retransmits = 0;
  for (const Json& row : result["rows"]) retransmits += row["retransmits"].get<uint64_t>();
  EXPECT_GT(retransmits, 0u) << "the faults did not bite";
}

TEST(Trees, every_aggregator_gets_a_share) {
  const Lab lab({"--workers", "2", "--aggregators", "2"});
  Perf(lab, {"--shape", "shards", "--counts", "500003", "--iters", "2", "--warmup", "0"});
  const uint64_t a1 = Stats(lab, "a1")["contributions"], a2 = Stats(lab, "a2")["contributions"];
  EXPECT_GT(a1, 0u);
  EXPECT_LT(std::max(a1, a2), std::min(a1, a2) * 3 / 2);
}

TEST(Trees, ranks_of_one_host_need_no_wire) {
  const Lab lab({"--workers", "1", "--aggregators", "0"});
  const uint64_t before = SentPackets(lab, "w1");
  Perf(lab, {"--counts", "100003", "--iters", "2", "--warmup", "0", "--ranks-per-host", "8"});
  EXPECT_LT(SentPackets(lab, "w1") - before, 20u) << "membership reports, if anything";
  const Json stats = Stats(lab, "w1");
  EXPECT_EQ(stats["verdicts"]["SUM_COMPLETE_LOCAL"]["count"], stats["results"]);
}

TEST(Trees, one_packet_a_host_leaves_for_all_of_its_ranks) {
  for (const std::string loss : {"0", "1"}) {
    const Lab lab({"--workers", "2", "--aggregators", "1", "--loss", loss});
    const Json result = Perf(lab, {"--counts", "1000003", "--dtype", "int32", "--iters", "2", "--warmup", "0", "--ranks-per-host", "8"});
    EXPECT_EQ(result["rows"][0]["ranks"], 16);
    // What came to the aggregator: two collectives of two hosts, 4 bytes an element and headers, once for 8 ranks.
    const double bytes = Stats(lab, "a1")["bytes_in"].get<double>(), once = 2.0 * 2 * 4 * 1000003;
    EXPECT_GT(bytes, once * 0.95) << "loss " << loss;
    // 16 ranks that wait for a processor send again without any loss: at most a frame each time.
    const double again = result["rows"][0]["retransmits"].get<double>() * 1514;
    EXPECT_LT(bytes, once * (loss == "0" ? 1.12 : 1.4) + again) << "loss " << loss;
  }
}

Json Ctl(const Lab& lab, const std::string& host, std::vector<std::string> args) {
  args.insert(args.begin(), {(LabProgram().parent_path() / "mlnetctl").string(), "-j"});
  const Output output = lab.Exec(host, args);
  const Json json = Json::parse(output.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << output.err;
  return json;
}

TEST(Trees, every_level_shows_by_how_much_it_reduces) {
  for (const std::string loss : {"0", "1"}) {
    const Lab lab({"--workers", "2", "--aggregators", "1", "--loss", loss});
    Perf(lab, {"--counts", "300007", "--iters", "2", "--warmup", "0", "--ranks-per-host", "4"});
    const std::string job = Ctl(lab, "w2", {"job", "list"}).at("jobs").at(0).at("name");
    // The job is over: what each host publishes last is on its way.
    Json levels;
    const auto sums = [&](size_t level) { return levels["trees"][0]["levels"][level]; };
    EXPECT_TRUE(WaitFor([&] {
      levels = Ctl(lab, "w2", {"stats", job, "--levels", "--tree", "0"});
      return levels["trees"].size() == 1 && sums(0)["packets_in"] == levels["ranks"]["packets_out"] && sums(1)["packets_in"] == sums(0)["packets_out"];
    })) << levels.dump(1);
    EXPECT_EQ(levels["schema"], "mlnet.levels/1");
    EXPECT_GT(levels["ranks"]["packets_out"].get<uint64_t>(), 8u * 300007 * 4 / 1408);
    ASSERT_EQ(sums(0)["nodes"].size(), 2u);
    for (const Json& node : sums(0)["nodes"]) {
      EXPECT_DOUBLE_EQ(node["reduction"].get<double>(), 4.0) << loss << node.dump();
      ASSERT_EQ(node["lag"].size(), 4u);
      for (const Json& child : node["lag"]) EXPECT_GT(child["samples"].get<uint64_t>(), 0u) << node.dump();
      EXPECT_THAT(node["slowest"]["child"].get<std::string>(), HasSubstr("rank "));
    }
    ASSERT_EQ(sums(1)["nodes"].size(), 1u);
    EXPECT_EQ(sums(1)["nodes"][0]["host"], "a1");
    EXPECT_DOUBLE_EQ(sums(1)["reduction"].get<double>(), 2.0) << loss << sums(1).dump();
    EXPECT_THAT(sums(1)["slowest"]["child"].get<std::string>(), HasSubstr("host w"));
    const Json top = Ctl(lab, "a1", {"top", "-a", "-n", "1"}).at("jobs").at(0);
    EXPECT_EQ(top["name"], job);
    EXPECT_EQ(top["packets_in"], sums(0)["packets_in"].get<uint64_t>() + sums(1)["packets_in"].get<uint64_t>());
    EXPECT_DOUBLE_EQ(top["reduction"].get<double>(), 10.0 / 3) << "8 and 2 in, 2 and 1 out";
  }
}

uint64_t Count(const Json& stats, const std::string& verdict) {
  return stats["verdicts"].contains(verdict) ? stats["verdicts"][verdict]["count"].get<uint64_t>() : 0;
}

TEST(Trees, with_ipv6_alone_an_aggregator_sums_and_sends_by_multicast) {
  const Lab lab({"--workers", "3", "--aggregators", "1", "--ipv6", "--loss", "1"});
  // Where a busy daemon tells of the probe later than the root waits for it, the job makes copies: then another is measured.
  Json before, after;
  EXPECT_TRUE(WaitFor([&] {
    before = Stats(lab, "a1");
    Perf(lab, {"--counts", "1,353,4096,200003", "--iters", "2", "--warmup", "0"});
    after = Stats(lab, "a1");
    return testing::Test::HasFailure() || Count(after, "SUM_COMPLETE_TX") > Count(before, "SUM_COMPLETE_TX");
  }, std::chrono::seconds(60)));
  EXPECT_EQ(Count(after, "SUM_COMPLETE_FAN"), Count(before, "SUM_COMPLETE_FAN"));
}

TEST(Trees, with_ipv6_alone_an_aggregator_makes_copies_where_multicast_is_off) {
  const Lab lab({"--workers", "3", "--aggregators", "1", "--ipv6"});
  for (const std::string host : {"a1", "w1", "w2", "w3"}) {
    EXPECT_EQ(lab.Exec(host, {"ip", "-4", "-j", "addr", "show", "dev", "eth0"}).out.find("10.77"), std::string::npos);
  }
  Perf(lab, {"--counts", "100003", "--iters", "2", "--warmup", "0", "--multicast", "off"});
  EXPECT_GT(Count(Stats(lab, "a1"), "SUM_COMPLETE_FAN"), 0u);
}

TEST(Trees, with_ipv6_alone_the_hosts_of_the_ranks_sum_for_each_other) {
  const Lab lab({"--workers", "3", "--aggregators", "0", "--ipv6", "--loss", "1"});
  Perf(lab, {"--counts", "1,4096,200003", "--iters", "2", "--warmup", "0", "--ranks-per-host", "2"});
  for (const std::string host : {"w1", "w2", "w3"}) EXPECT_GT(Stats(lab, host)["contributions"].get<uint64_t>(), 0u) << host;
}

TEST(Trees, hosts_with_several_ranks_sum_for_each_other) {
  const Lab lab({"--workers", "3", "--aggregators", "0", "--loss", "1"});
  Perf(lab, {"--counts", "1,4096,300007", "--iters", "2", "--warmup", "0", "--ranks-per-host", "3"});
}

}  // namespace
}  // namespace mlnet::lab_test
