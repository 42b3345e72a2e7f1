// SPDX-License-Identifier: Apache-2.0
// mlnet-lab perf end to end: real daemons, real kernel, real faults. Every collective is checked against sums
// that each rank computes for itself; nothing may be summed in user space.
#include <cstdlib>
#include <map>
#include <thread>

#include "lab/lab_fixture.h"

namespace mlnet::lab_test {
namespace {

using testing::HasSubstr;

// 1 element to 1 MiB of 4-byte elements: around a block (32), a packet (352), a pool of packets, and odd
// ones.
constexpr const char* kCounts = "1,3,31,32,33,351,352,353,4096,90113,262144";
constexpr size_t kNumCounts = 11;

Json Perf(const Lab& lab, std::vector<std::string> args) {
  args.insert(args.begin(), {"-j", "--name", lab.name(), "perf"});
  const Output output = RunLab(args);
  EXPECT_EQ(output.exit_code, 0) << output.err;
  const Json result = Json::parse(output.out, nullptr, false);
  EXPECT_TRUE(result.is_object()) << output.out;
  return result;
}

struct FaultCase {
  const char* name;
  const char* workers;
  const char* ranks_per_host;
};

class PerfUnderFaults : public testing::TestWithParam<FaultCase> {};

TEST_P(PerfUnderFaults, EverySizeIsRightAndSummedInTheKernel) {
  const Lab lab(
      {"--workers", GetParam().workers, "--aggregators", "1", "--loss", "1", "--dup", "1", "--reorder", "1"});
  const int ranks = std::stoi(GetParam().workers) * std::stoi(GetParam().ranks_per_host);
  for (const std::string dtype : {"float32", "int32"}) {
    const Json result = Perf(lab, {"--counts", kCounts, "--dtype", dtype, "--ranks-per-host",
                                   GetParam().ranks_per_host, "--iters", "3", "--warmup", "1", "--check"});
    EXPECT_EQ(result["schema"], "mlnet-lab.perf/1");
    ASSERT_EQ(result["rows"].size(), kNumCounts);
    uint64_t retransmits = 0;
    for (const Json& row : result["rows"]) {
      SCOPED_TRACE(row.dump());
      EXPECT_EQ(row["backend"], "mlnet");
      EXPECT_EQ(row["wire"], "int32");
      EXPECT_EQ(row["dtype"], dtype);
      EXPECT_EQ(row["ranks"], ranks);
      EXPECT_EQ(row["wrong"], 0);
      EXPECT_EQ(row["checked"], 4 * row["count"].get<uint64_t>());  // every collective, the warm-up included
      EXPECT_EQ(row["summed_in_user_space"], 0);
      EXPECT_GT(row["summed_in_kernel"].get<uint64_t>(), 0u);
      EXPECT_GT(row["time_us_p50"].get<double>(), 0);
      retransmits += row["retransmits"].get<uint64_t>();
    }
    EXPECT_GT(retransmits, 0u) << "the faults did not bite";
  }
}

INSTANTIATE_TEST_SUITE_P(Labs, PerfUnderFaults,
                         testing::Values(FaultCase{"two_workers", "2", "1"},
                                         FaultCase{"four_workers", "4", "1"},
                                         FaultCase{"two_ranks_per_host", "2", "2"}),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

// The aggregator's sums are the kernel's: its program is native, and no process there listens on the data
// port.
TEST(Perf, WhileItRunsTheAggregatorIsNativeAndNoProcessHasTheDataPort) {
  const Lab lab({"--workers", "2", "--aggregators", "1"});
  Json result;
  std::thread run([&] { result = Perf(lab, {"--sizes", "16M", "--iters", "20", "--check"}); });
  const auto contributions = [&] {
    const Output stats = lab.Exec("a1", {(LabProgram().parent_path() / "mlnetctl").string(), "-j", "stats"});
    const Json json = Json::parse(stats.out, nullptr, false);
    return json.is_object() ? json["contributions"].get<uint64_t>() : 0;
  };
  EXPECT_TRUE(WaitFor([&] { return contributions() > 1000; }));
  const std::string programs = lab.Exec("a1", {"bpftool", "net", "show", "dev", "eth0"}).out;
  const std::string sockets = lab.Exec("a1", {"ss", "-Huan", "sport", "=", ":28012"}).out;
  const uint64_t at_look = contributions();
  run.join();
  EXPECT_GT(contributions(), at_look) << "it was over before it was looked at";
  EXPECT_THAT(programs, HasSubstr("eth0(2) driver id"));
  EXPECT_EQ(sockets, "");
  EXPECT_EQ(result["rows"][0]["wrong"], 0);
}

// What fits decides: 2816 bytes of payload instead of 1408, on the hosts' own links too.
TEST(Perf, WhereTheMtuAllowsHalfAsManyPacketsCarryTheSameSums) {
  std::map<std::string, std::vector<double>> packets;
  for (const std::string mtu : {"1500", "3498"}) {
    const Lab lab({"--workers", "2", "--aggregators", "1", "--mtu", mtu});
    for (const std::string dtype : {"float32", "float64", "int32"}) {
      const Json result = Perf(lab, {"--counts", "262144,352", "--dtype", dtype, "--ranks-per-host", "2", "--iters", "2", "--check",
                                     "--bound", "block"});  // no fix-up stream, whose packets are not half as many
      for (const Json& row : result["rows"]) {
        EXPECT_EQ(row["wrong"], 0) << row.dump();
        EXPECT_EQ(row["summed_in_user_space"], 0) << row.dump();
      }
      packets[dtype].push_back(result["rows"][0]["summed_in_kernel"].get<double>());
    }
  }
  // Of float64, five blocks of 256 bytes and five of 512.
  for (const auto& [dtype, counts] : packets) EXPECT_NEAR(counts[0] / counts[1], 2, 0.1) << dtype;
}

// The long form (tools/check --full): 8 hosts, 16 ranks, up to 64 MiB, every link with every fault.
TEST(Perf, LongSweepUnderFaults) {
  if (const char* is_long = getenv("MLNET_LONG"); is_long == nullptr || std::string(is_long) != "1") return;
  const Lab lab({"--workers", "8", "--aggregators", "1", "--loss", "1", "--dup", "1", "--reorder", "1"});
  for (const std::string ranks_per_host : {"1", "2"}) {
    const Json result =
        Perf(lab, {"--counts", "1,7,353,100003,1048577,16777216", "--ranks-per-host", ranks_per_host,
                   "--iters", "1", "--warmup", "0", "--check", "--timeout", "300"});
    ASSERT_EQ(result["rows"].size(), 6u);
    for (const Json& row : result["rows"]) {
      EXPECT_EQ(row["wrong"], 0) << row.dump();
      EXPECT_EQ(row["summed_in_user_space"], 0) << row.dump();
    }
  }
}

TEST(Perf, EveryWireTypeHasItsOwnRows) {
  const Lab lab({"--workers", "3", "--aggregators", "1"});
  for (const std::string dtype : {"float32", "float16", "bfloat16"}) {
    const Json result = Perf(lab, {"--counts", "129,5000", "--wire", "int32,int16,int8", "--dtype", dtype,
                                   "--iters", "3", "--warmup", "0", "--check"});
    ASSERT_EQ(result["rows"].size(), 6u);
    EXPECT_EQ(result["rounds"], 3);
    const std::vector<std::string> wires = {"int32", "int16", "int8"};
    for (size_t i = 0; i < 6; ++i) {
      const Json& row = result["rows"][i];
      SCOPED_TRACE(row.dump());
      EXPECT_EQ(row["backend"], "mlnet");
      EXPECT_EQ(row["wire"], wires[i % 3]);
      EXPECT_EQ(row["bound"], i % 3 == 0 ? "element" : "block");
      EXPECT_EQ(row["count"], i < 3 ? 129 : 5000);
      EXPECT_EQ(row["wrong"], 0);
      EXPECT_EQ(row["checked"], 3 * row["count"].get<uint64_t>());
      EXPECT_EQ(row["summed_in_user_space"], 0);
    }
    // Not three times the same: a packet of int16 lanes has twice the elements, one of int8 four times.
    const auto packets = [&](size_t i) { return result["rows"][i]["summed_in_kernel"].get<uint64_t>(); };
    EXPECT_GT(packets(3), packets(4));
    EXPECT_GT(packets(4), packets(5));
  }
}

TEST(Perf, EitherBoundIsKept) {
  const Lab lab({"--workers", "2", "--aggregators", "1"});
  for (const std::string dtype : {"float32", "float64"}) {
    for (const std::string bound : {"element", "block"}) {
      const Json result =
          Perf(lab, {"--counts", "100000", "--dtype", dtype, "--bound", bound, "--iters", "2", "--check"});
      const Json& row = result["rows"][0];
      EXPECT_EQ(row["bound"], bound);
      EXPECT_EQ(row["dtype"], dtype);
      EXPECT_EQ(row["wrong"], 0) << row.dump();
    }
  }
}

TEST(Perf, EveryTypeAndOperationIsRight) {
  const Lab lab({"--workers", "2", "--aggregators", "1"});
  for (const std::string dtype :
       {"float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64"}) {
    for (const std::string op : {"sum", "min", "max"}) {
      const Json result =
          Perf(lab, {"--counts", "1,4097", "--dtype", dtype, "--op", op, "--iters", "1", "--warmup", "0"});
      for (const Json& row : result["rows"]) {
        SCOPED_TRACE(row.dump());
        EXPECT_EQ(row["dtype"], dtype);
        EXPECT_EQ(row["op"], op);
        EXPECT_EQ(row["wrong"], 0);
        EXPECT_EQ(row["checked"], row["count"]);
        EXPECT_EQ(row["summed_in_user_space"], 0);
      }
    }
  }
}

/// Name of the XDP program on a port of the switch; "" without one.
std::string ProgramOn(const Lab& lab, const std::string& port) {
  const Output links = lab.Exec("switch", {"ip", "-j", "-d", "link", "show", "dev", port});
  const Json json = Json::parse(links.out, nullptr, false);
  return json.is_array() && json[0].contains("xdp") ? json[0]["xdp"]["prog"].value("name", "unnamed") : "";
}

TEST(Perf, WhereWorkersKeepTheirOffloadAllIsRightAndFaultsStillMeetSingleFrames) {
  const Lab lab({"--workers", "3", "--aggregators", "1", "--rate", "unlimited", "--agg-rate", "unlimited", "--offload"});
  EXPECT_EQ(ProgramOn(lab, "p-w1"), "");
  EXPECT_EQ(ProgramOn(lab, "p-a1"), "lab_forward");
  for (const std::string multicast : {"on", "off"}) {
    const Json result = Perf(lab, {"--counts", "1,353,300000", "--wire", "int32,int16", "--multicast", multicast, "--iters", "3", "--check"});
    for (const Json& row : result["rows"]) {
      EXPECT_EQ(row["wrong"], 0) << row.dump();
      EXPECT_EQ(row["summed_in_user_space"], 0) << row.dump();
    }
  }
  lab.Fault({"set", "all", "--loss", "1"});
  EXPECT_EQ(ProgramOn(lab, "p-w1"), "lab_pass");
  EXPECT_EQ(ProgramOn(lab, "p-a1"), "lab_pass");
  const Json disturbed = Perf(lab, {"--counts", "300000", "--iters", "2", "--check"});
  EXPECT_EQ(disturbed["rows"][0]["wrong"], 0);
  EXPECT_GT(disturbed["rows"][0]["retransmits"].get<uint64_t>(), 0u);
  lab.Fault({"clear"});
  EXPECT_EQ(ProgramOn(lab, "p-w1"), "");

  const Output shape = RunLab({"--name", lab.name(), "perf", "--sizes", "4K", "--shape", "workers"});
  EXPECT_EQ(shape.exit_code, 6);
  EXPECT_THAT(shape.err, HasSubstr("hosts of ranks cannot sum in a lab with --offload"));
  EXPECT_EQ(RunLab({"--name", lab.name(), "perf", "--sizes", "4K", "--ranks-per-host", "2"}).exit_code, 6);
}

TEST(Perf, ALabWithARateKeepsItsQueuesWithOffload) {
  const Lab lab({"--workers", "2", "--aggregators", "1", "--rate", "200mbit", "--agg-rate", "1gbit", "--offload"});
  EXPECT_EQ(ProgramOn(lab, "p-w1"), "");
  EXPECT_EQ(ProgramOn(lab, "p-a1"), "lab_pass");
  constexpr double kCount = 3'000'000, kBurstMost = 256 << 10;  // bytes that a queue lets pass at once after a pause
  const Json row = Perf(lab, {"--counts", "3000000", "--iters", "2", "--check"})["rows"][0];
  EXPECT_EQ(row["wrong"], 0);
  EXPECT_GT(row["link_percent"].get<double>(), 10);
  EXPECT_LE(row["link_percent"].get<double>(), 1408.0 / 1514 * 101 * (1 + kBurstMost / (kCount * 4))) << "the queue lets no more through, and headers are in it";
  EXPECT_GT(row["links"]["w1"]["tx_bytes"].get<double>(), kCount * 4);
}

#ifdef MLNET_HAS_PEERS
TEST(Perf, PeersReduceEveryTypeTheyHave) {
  const Lab lab({"--workers", "3", "--aggregators", "1"});
  for (const std::string dtype : {"float64", "float16", "int8", "uint8", "int16", "int64"}) {
    for (const std::string op : {"sum", "min"}) {
      const bool is_short =
          dtype == "int8" || dtype == "uint8" || dtype == "int16";  // whose sums MPI saturates
      const bool has_mpi = dtype != "float16" && !(is_short && op == "sum");
      const std::string peers = has_mpi ? "gloo,mpi" : "gloo";
      const Json result = Perf(lab, {"--counts", "4097", "--dtype", dtype, "--op", op, "--compare", peers,
                                     "--iters", "1", "--warmup", "0"});
      for (const Json& row : result["rows"]) EXPECT_EQ(row["wrong"], 0) << row.dump();
    }
  }
}

TEST(Perf, PeersTakeTurnsOnTheSameLinksAndXdpComesBack) {
  const Lab lab({"--workers", "3", "--aggregators", "1"});
  const Json result =
      Perf(lab, {"--sizes", "4,100K", "--compare", "gloo,mpi,gloo-fp16", "--iters", "4", "--rounds", "2"});
  ASSERT_EQ(result["rows"].size(), 8u);
  const std::vector<std::string> order = {"mlnet", "gloo", "mpi", "gloo-fp16", "mlnet", "gloo", "mpi", "gloo-fp16"};
  for (size_t i = 0; i < order.size(); ++i) {
    const Json& row = result["rows"][i];
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(row["backend"], order[i]);
    EXPECT_EQ(row["bytes"], i < 4 ? 4 : 102400);
    EXPECT_EQ(row["round_us_p50"].size(), 2u);
    EXPECT_GT(row["cpu_s_per_GB"]["user"].get<double>() + row["cpu_s_per_GB"]["system"].get<double>(), 0);
    EXPECT_GT(row["memory_bytes"].get<uint64_t>(), 1'000'000u);
    if (order[i] != "mlnet") {
      EXPECT_NE(row["algorithm"], "") << "the fastest of those that it has";
    }
    EXPECT_EQ(row["iterations"], 4);
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_GT(row["checked"].get<uint64_t>(), 0u);
  }
  // The last turn was a peer's: the hosts' programs must be back.
  const Output again = RunLab({"-j", "--name", lab.name(), "perf", "--sizes", "4K", "--iters", "1"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
}
#endif

// 2 racks of 2 hosts, the aggregator in the core: each host's contribution passes an uplink as itself.
TEST(Perf, CountsWhatEachCollectiveSendsIntoTheCore) {
  const Lab lab({"--workers", "4", "--racks", "2", "--aggregators", "1", "--rate", "200mbit", "--oversubscription", "2"});
  const Json result = Perf(lab, {"--counts", "200003", "--dtype", "int32", "--iters", "2", "--shape", "star",
                                 "--placement", "interleaved", "--ranks-per-host", "2", "--check"});
  const Json& row = result["rows"][0];
  EXPECT_EQ(row["wrong"], 0);
  EXPECT_EQ(row["ranks"], 8);
  EXPECT_EQ(row["shape"], "star");
  EXPECT_EQ(row["placement"], "interleaved");
  const double contribution = 200003 * 4 * 1514.0 / 1408;
  const double again = row["retransmits"].get<double>() * 1514;  // of ranks that had to wait for a processor; of both iterations
  EXPECT_GT(row["core_bytes"].get<double>(), 4 * contribution);
  EXPECT_LT(row["core_bytes"].get<double>(), 4 * contribution * 1.05 + again) << "and probes, and joining the group";
  EXPECT_GT(row["links"]["r1"]["rx_bytes"].get<double>(), contribution);
  EXPECT_LT(row["links"]["r1"]["rx_bytes"].get<double>(), 2 * contribution * 1.05 + again) << "at most one result a host";
  EXPECT_GT(row["cpu_percent"].get<double>(), 0);
  const Output jobs = lab.Exec("w1", {(LabProgram().parent_path() / "mlnetctl").string(), "job", "list"});
  EXPECT_THAT(jobs.out, testing::Not(HasSubstr("perf-"))) << "declared jobs are taken back";
}

#ifdef MLNET_HAS_PEERS
// The ring's way between racks is once there and back in rack order, and every hop where they are interleaved.
TEST(Perf, PlacesTheRanksOfPeers) {
  const Lab lab({"--no-daemons", "--workers", "4", "--racks", "2", "--rate", "400mbit", "--oversubscription", "1"});
  const Json result = Perf(lab, {"--sizes", "1M", "--iters", "3", "--compare", "gloo", "--gloo-algorithm", "ring",
                                 "--placement", "racks,interleaved"});
  ASSERT_EQ(result["rows"].size(), 2u);
  EXPECT_EQ(result["rows"][0]["placement"], "racks");
  EXPECT_EQ(result["rows"][1]["placement"], "interleaved");
  for (const Json& row : result["rows"]) {
    EXPECT_EQ(row["wrong"], 0) << row.dump();
    EXPECT_EQ(row["algorithm"], "ring");
    const double hops = row["placement"] == "racks" ? 2 : 4;
    EXPECT_GT(row["core_bytes"].get<double>(), hops * 1.5 * (1 << 20));
    EXPECT_LT(row["core_bytes"].get<double>(), hops * 1.5 * (1 << 20) * 1.15) << "headers and acknowledgements";
  }
}
#endif

TEST(Perf, SaysWhatIsWrongWithItsArguments) {
  const Lab lab({"--workers", "2", "--aggregators", "0", "--no-daemons"});
  const auto perf = [&lab](std::vector<std::string> args) {
    args.insert(args.begin(), {"--name", lab.name(), "perf"});
    return RunLab(args);
  };
  const Output wire = perf({"--wire", "int32,int12"});
  EXPECT_EQ(wire.exit_code, 2);
  EXPECT_THAT(wire.err, HasSubstr("'int12' is no wire type; there are int32, int16, int8"));
  const Output narrow = perf({"--wire", "int32,int16", "--dtype", "int32"});
  EXPECT_EQ(narrow.exit_code, 6);
  EXPECT_THAT(
      narrow.err,
      HasSubstr("wire type int16 is for sums of float32, float16 and bfloat16, not for sum of int32"));
  const Output levels = perf({"--wire", "int8", "--ranks-per-host", "9"});
  EXPECT_EQ(levels.exit_code, 6);
  EXPECT_THAT(levels.err, HasSubstr("wire type int8 leaves too few levels with 18 ranks"));
  const Output peer = perf({"--compare", "gloo", "--dtype", "bfloat16"});
  EXPECT_EQ(peer.exit_code, 6);
  EXPECT_THAT(peer.err, HasSubstr("gloo has no bfloat16"));
  const Output size = perf({"--sizes", "5"});
  EXPECT_EQ(size.exit_code, 2);
  EXPECT_THAT(size.err, HasSubstr("5 bytes are no whole number of 4-byte elements"));
  const Output nothing = perf({"--sizes", "4"});
  EXPECT_EQ(nothing.exit_code, 3);
  EXPECT_THAT(nothing.err, HasSubstr("runs no daemons"));
  const Output odd = perf({"--sizes", "12", "--dtype", "int64"});
  EXPECT_THAT(odd.err, HasSubstr("12 bytes are no whole number of 8-byte elements"));
  EXPECT_EQ(perf({"--op", "product"}).exit_code, 2);
  EXPECT_EQ(perf({"--placement", "random"}).exit_code, 2);
  EXPECT_EQ(perf({"--dtype", "bool"}).exit_code, 2);
  EXPECT_EQ(perf({"--bound", "none"}).exit_code, 2);
}

TEST(Perf, NamesALabThatIsNotUp) {
  const Output output = RunLab({"--name", FreshName(), "perf"});
  EXPECT_EQ(output.exit_code, 3);
}

}  // namespace
}  // namespace mlnet::lab_test
