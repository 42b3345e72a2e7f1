// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "perf_table.h"

namespace mlnet::lab {
namespace {

using testing::HasSubstr;

PerfRow Row(const std::string& backend, uint64_t count, std::vector<uint64_t> times_ns) {
  PerfRow row;
  row.backend = backend;
  row.wire = backend == "mlnet" ? "int32" : "";
  row.bound = backend == "mlnet" ? "element" : "";
  row.ranks = 4;
  row.count = count;
  row.times_ns = std::move(times_ns);
  row.has_kernel_counters = backend == "mlnet";
  return row;
}

TEST(PercentileUs, IsTheNearestRank) {
  std::vector<uint64_t> times(100);
  std::iota(times.begin(), times.end(), 1);
  std::reverse(times.begin(), times.end());
  for (auto& time : times) time *= 1000;
  EXPECT_DOUBLE_EQ(PercentileUs(times, 50), 50);
  EXPECT_DOUBLE_EQ(PercentileUs(times, 99), 99);
  EXPECT_DOUBLE_EQ(PercentileUs(times, 100), 100);
  EXPECT_DOUBLE_EQ(PercentileUs({7000}, 99), 7);
  EXPECT_DOUBLE_EQ(PercentileUs({}, 50), 0);
}

TEST(PerfRow, BandwidthsFollowNcclTests) {
  // 1,000,000 bytes in 1 ms: 1000 MB/s; 4 ranks: a ring's links carry 2 * 3/4 of it.
  const PerfRow row = Row("mlnet", 250000, {1'000'000});
  EXPECT_DOUBLE_EQ(row.AlgorithmMBps(), 1000);
  EXPECT_DOUBLE_EQ(row.BusMBps(), 1500);
}

TEST(PerfRow, PayloadIsWhatALinkMustCarryAtLeast) {
  PerfRow row = Row("mlnet", 1000, {1'000'000});
  row.link_bps = 64'000'000;  // 8000 bytes in that millisecond
  EXPECT_DOUBLE_EQ(row.PayloadBytes(), 4000);
  EXPECT_DOUBLE_EQ(*row.LinkPercent(), 50);
  row.wire = "int16";
  EXPECT_DOUBLE_EQ(*row.LinkPercent(), 25);
  row.wire = "int8";
  EXPECT_DOUBLE_EQ(*row.LinkPercent(), 12.5);
  row.link_bps = 0;
  EXPECT_EQ(row.LinkPercent(), std::nullopt);
  EXPECT_DOUBLE_EQ(Row("gloo", 1000, {1}).PayloadBytes(), 6000) << "3/4 of the tensor, twice";
  EXPECT_DOUBLE_EQ(Row("gloo-fp16", 1000, {1}).PayloadBytes(), 3000);
}

TEST(PerfRow, SecondsPerGBAreThoseOfAllItsCollectives) {
  // 2 collectives of 4000 bytes: 8 us of a processor are 1 s for 10^9 bytes.
  EXPECT_DOUBLE_EQ(Row("mlnet", 1000, {1, 1}).SecondsPerGB(8000), 1);
}

TEST(MergeTurn, TakesTheSlowestRankAndSumsCounters) {
  const std::vector<std::vector<perf::RankRow>> ranks = {{{8, "ring", {10, 40}, 1, 4, 5, 0, 2, {1, 2, 3, 4}, 70}},
                                                         {{8, "ring", {30, 20}, 2, 4, 6, 1, 3, {1, 1, 0, 0}, 90}}};
  std::vector<PerfRow> rows;
  MergeTurn(ranks, Row("gloo", 0, {}), rows);
  MergeTurn(ranks, Row("gloo", 0, {}), rows);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].count, 8u);
  EXPECT_THAT(rows[0].times_ns, testing::ElementsAre(30, 40, 30, 40));
  EXPECT_EQ(rows[0].wrong, 6u);
  EXPECT_EQ(rows[0].checked, 16u);
  EXPECT_EQ(rows[0].summed_in_kernel, 22u);
  EXPECT_EQ(rows[0].summed_in_user_space, 2u);
  EXPECT_EQ(rows[0].retransmits, 10u);
  EXPECT_EQ(rows[0].cpu, (perf::CpuTime{4, 6, 6, 8}));
  EXPECT_EQ(rows[0].memory_bytes, 90u);
  EXPECT_THAT(rows[0].round_us, testing::ElementsAre(0.03, 0.03));
  EXPECT_EQ(rows[0].variant, "ring");
}

TEST(MergeTurn, NamesEveryAlgorithmThatARoundTook) {
  std::vector<PerfRow> rows;
  for (const char* variant : {"ring", "bcube", "ring", "bcube"}) {
    MergeTurn({{{8, variant, {10}, 0, 4, 5, 0, 2}}}, Row("gloo", 0, {}), rows);
  }
  EXPECT_EQ(rows[0].variant, "ring, bcube");
}

TEST(RenderTable, HasTheShapeOfNcclTests) {
  PerfRow peer = Row("gloo", 250000, {2'000'000});
  peer.variant = "ring";
  peer.wrong = 3;
  peer.placement = "interleaved";
  peer.has_racks = true;
  peer.spent.core_bytes = 12345;
  peer.spent.cpu_busy = 3;
  peer.spent.cpu_total = 4;
  peer.link_bps = 8'000'000'000;
  PerfRow own = Row("mlnet", 250000, {1'000'000});
  own.cpu.user_ns = 3'000'000;
  own.cpu.system_ns = 500'000;
  own.memory_bytes = 2 << 20;
  EXPECT_EQ(RenderTable({own, peer}),
            "#       size       count     type  redop backend   wire   bound     time p50     time p99       "
            "algbw   "
            "    busbw        core  cpu   link cpu/GB   mem  #wrong  algorithm\n"
            "#        (B)  (elements)                                                (us)         (us)      "
            "(MB/s)   "
            "   (MB/s)         (B)  (%)    (%)    (s) (MiB)\n"
            "     1000000      250000  float32    sum   mlnet  int32 element       1000.0       1000.0     "
            "1000.00   "
            "  1500.00           -    0      -   3.50     2       0\n"
            "     1000000      250000  float32    sum    gloo      -       -       2000.0       2000.0      "
            "500.00   "
            "   750.00       12345   75   75.0   0.00     0       3  ring, interleaved\n");
}

TEST(RenderComparison, ComparesEveryWireTypeOfTheFirstBackend) {
  PerfRow narrow = Row("mlnet", 4, {500});
  narrow.wire = "int16";
  const std::string text = RenderComparison({Row("mlnet", 4, {1000}), narrow, Row("gloo", 4, {1300})});
  EXPECT_EQ(text,
            "# 16 bytes: mlnet int32 is 1.30 x as fast as gloo\n"
            "# 16 bytes: mlnet int16 is 2.60 x as fast as gloo\n");
  EXPECT_EQ(RenderComparison({Row("gloo", 4, {1000}), Row("mpi", 4, {2000})}),
            "# 16 bytes: gloo is 2.00 x as fast as mpi\n");
  EXPECT_EQ(RenderComparison({Row("mlnet", 4, {1000})}), "");
}

TEST(RenderComparison, SaysHowFarRoundsWereApart) {
  PerfRow own = Row("mlnet", 4, {1000, 2000}), peer = Row("gloo", 4, {3000, 2000});
  own.round_us = {1, 2};
  peer.round_us = {3, 2};
  EXPECT_EQ(RenderComparison({own, peer}), "# 16 bytes: mlnet int32 is 2.00 x as fast as gloo (rounds: 1.00 to 3.00)\n");
}

TEST(RenderComparison, SaysShapeAndPlacement) {
  PerfRow own = Row("mlnet", 4, {1000}), peer = Row("gloo", 4, {2000});
  own.shape = "rack";
  peer.placement = "interleaved";
  EXPECT_EQ(RenderComparison({own, peer}), "# 16 bytes: mlnet int32 rack is 2.00 x as fast as gloo interleaved\n");
}

TEST(Spent, IsTheDifferenceAddedUpOverTurnsAndTheCoreIsWhatRacksSend) {
  const auto snapshot = [](uint64_t n) {
    Snapshot s;
    s.links["r1"] = {Traffic{1000 * n, n, 0}, Traffic{100 * n, n, 0}};
    s.links["r2"] = {Traffic{7 * n, n, 0}, Traffic{0, 0, 0}};
    s.links["w1"] = {std::nullopt, Traffic{10 * n, n, 0}};
    s.cpu_busy = n;
    s.cpu_total = 4 * n;
    return s;
  };
  PerfRow row = Row("mlnet", 4, {1, 1});
  for (int turn = 0; turn < 2; ++turn) row.spent.Add(snapshot(3), snapshot(5), {Rack{.name = "r1"}, Rack{.name = "r2"}});
  row.has_racks = true;
  EXPECT_EQ(row.spent.links["r1"].tx, 4000u);
  EXPECT_EQ(row.spent.links["w1"].tx, std::nullopt);
  EXPECT_EQ(row.CoreBytes(), 2014u) << "of each of the two collectives";
  EXPECT_DOUBLE_EQ(row.spent.CpuPercent(), 25);
  const Json json = RowsToJson({row})[0];
  EXPECT_EQ(json["core_bytes"], 2014);
  EXPECT_EQ(json["links"]["r1"]["rx_bytes"], 200);
  EXPECT_TRUE(json["links"]["w1"]["tx_bytes"].is_null());
}

TEST(RowsToJson, HasTheFieldsOfTheSchema) {
  PerfRow own = Row("mlnet", 250000, {1'000'000, 2'000'000});
  own.summed_in_kernel = 9;
  const Json rows = RowsToJson({own, Row("mpi", 250000, {1'000'000})});
  for (const char* key :
       {"backend", "wire", "bound", "ranks", "bytes", "count", "dtype", "op", "time_us_p50", "time_us_p99",
        "algbw_MBps", "busbw_MBps", "wrong", "summed_in_kernel", "summed_in_user_space", "retransmits"}) {
    EXPECT_TRUE(rows[0].contains(key)) << key;
  }
  EXPECT_EQ(rows[0]["bytes"], 1000000);
  EXPECT_EQ(rows[0]["time_us_p50"], 1000.0);
  EXPECT_EQ(rows[0]["time_us_p99"], 2000.0);
  EXPECT_EQ(rows[0]["summed_in_kernel"], 9);
  EXPECT_EQ(rows[0]["summed_in_user_space"], 0);
  EXPECT_TRUE(rows[1]["summed_in_user_space"].is_null());
  EXPECT_TRUE(rows[1]["wire"].is_null());
  EXPECT_TRUE(rows[1]["bound"].is_null());
  EXPECT_TRUE(rows[1]["core_bytes"].is_null());
}

TEST(RowsToJson, NamesTypeAndOperationAndCountsTheTypesBytes) {
  PerfRow row = Row("mlnet", 1000, {1'000'000});
  row.dtype = DataType::kBFloat16;
  row.op = ReduceOp::kMax;
  const Json rows = RowsToJson({row});
  EXPECT_EQ(rows[0]["dtype"], "bfloat16");
  EXPECT_EQ(rows[0]["op"], "max");
  EXPECT_EQ(rows[0]["bytes"], 2000);
}

}  // namespace
}  // namespace mlnet::lab
