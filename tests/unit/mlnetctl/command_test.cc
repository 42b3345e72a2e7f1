// SPDX-License-Identifier: Apache-2.0
// Every command against a scripted daemon: what is asked of it and what is printed where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "unit/mlnetctl/command_fixture.h"

namespace mlnet::ctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Json kIface = {{"name", "eth0"},   {"ifindex", 3},        {"driver", "veth"},
                     {"mtu", 1500},      {"speed_mbps", 10000}, {"attached", true},
                     {"mode", "native"}, {"via", "bpf_link"},   {"why", "driver has native XDP"},
                     {"prog_id", 77},    {"tags", "tcx"},       {"aggregator", true},  {"address", "10.77.0.1"}};
const Json kJob = {{"name", "demo"},
                   {"id", 3},
                   {"epoch", 1},
                   {"state", "ready"},
                   {"world_size", 4},
                   {"joined", 4},
                   {"aggregator", "10.77.0.5"},
                   {"reason", ""}};

Json Status(const std::string& state, Json problems, Json ifaces, Json jobs) {
  return {{"schema", "mlnet.status/1"},
          {"state", state},
          {"problems", problems},
          {"host", "w1"},
          {"instance", "w1"},
          {"pid", 12},
          {"uptime_s", 184},
          {"ifaces", ifaces},
          {"jobs", jobs},
          {"store", "/x/store.db"}};
}

TEST_F(Command, IfaceListPrintsAnAlignedTable) {
  EXPECT_EQ(
      RunWith("iface.list", Json{{"schema", "mlnet.iface.list/1"}, {"ifaces", {kIface}}}, {"iface", "list"}),
      0);
  EXPECT_EQ(out_,
            "IFACE  ATTACHED  MODE    VIA       TAGS  AGGREGATOR  PROGRAM  ADDRESS    MTU   SPEED    DRIVER  WHY\n"
            "eth0   yes       native  bpf_link  tcx   yes         77       10.77.0.1  1500  10 Gb/s  veth    "
            "driver has native XDP\n");
  EXPECT_EQ(err_, "");
}

TEST_F(Command, IfaceAttachSendsOnlyWhatWasGiven) {
  daemon_.On("iface.attach", kIface);
  daemon_.Start();
  EXPECT_EQ(Run({"iface", "attach", "eth0"}), 0);
  EXPECT_EQ(out_, "");
  EXPECT_EQ(err_, "eth0: attached in native mode through bpf_link, program 77 (driver has native XDP)\n");
  EXPECT_EQ(Run({"iface", "attach", "eth0", "-m", "generic", "--share", "shared", "--no-aggregator", "-q"}),
            0);
  EXPECT_EQ(err_, "");
  EXPECT_THAT(
      daemon_.requests(),
      ElementsAre(R"(iface.attach {"name":"eth0"})",
                  R"(iface.attach {"aggregator":false,"mode":"generic","name":"eth0","share":"shared"})"));
}

TEST_F(Command, IfaceAttachTakesAListAndSaysWhatWasLeftOut) {
  const Json docker = {{"name", "docker0"}, {"why", "docker0 is a bridge"}};
  daemon_.On("iface.attach", {{"schema", "mlnet.iface.attach/1"}, {"ifaces", {kIface}}, {"skipped", {docker}}});
  daemon_.Start();
  EXPECT_EQ(Run({"iface", "attach", "=eth0,docker0"}), 0);
  EXPECT_EQ(err_, "eth0: attached in native mode through bpf_link, program 77 (driver has native XDP)\n"
                  "docker0: left out: docker0 is a bridge\n");
  EXPECT_EQ(Run({"iface", "attach", "^lo", "-q"}), 0);
  EXPECT_THAT(daemon_.requests(), ElementsAre(R"(iface.attach {"match":"=eth0,docker0"})", R"(iface.attach {"match":"^lo"})"));
}

TEST_F(Command, IfaceDetachInJsonPrintsTheDaemonsObject) {
  EXPECT_EQ(RunWith("iface.detach", Json{{"schema", "mlnet.iface/1"}, {"name", "eth0"}},
                    {"-j", "iface", "detach", "eth0"}),
            0);
  EXPECT_EQ(out_, "{\"name\":\"eth0\",\"schema\":\"mlnet.iface/1\"}\n");
  EXPECT_EQ(err_, "");
}

TEST_F(Command, JobCreatePassesItsOptions) {
  EXPECT_EQ(RunWith("job.create", kJob,
                    {"job", "create", "demo", "-n", "4", "--slots", "256", "--multicast", "off",
                     "--rto-min-us", "500"}),
            0);
  EXPECT_THAT(
      daemon_.requests(),
      ElementsAre(
          R"(job.create {"multicast":"off","name":"demo","rto_min_us":500,"slots":256,"world_size":4})"));
  EXPECT_EQ(err_, "job demo: ready, 4/4 ranks joined\n");
}

TEST_F(Command, JobCreateTakesEachShapeThatTheConfigurationTakes) {
  // As mlnetd.toml lists them.
  for (const char* shape : {"auto", "star", "shards", "workers", "rack", "rack-shards", "binary", "degree"}) {
    EXPECT_EQ(Run({"job", "create", "demo", "-n", "4", "--shape", shape}), 3) << shape << ", and no daemon to ask: " << err_;
  }
  EXPECT_EQ(Run({"job", "create", "demo", "-n", "4", "--shape", "round"}), 2);
}

TEST_F(Command, JobListPrintsATable) {
  EXPECT_EQ(RunWith("job.list", Json{{"schema", "mlnet.job.list/1"}, {"jobs", {kJob}}}, {"job", "list"}), 0);
  EXPECT_EQ(out_,
            "JOB   ID  EPOCH  STATE  RANKS  AGGREGATOR  REASON\n"
            "demo  3   1      ready  4/4    10.77.0.5\n");
}

TEST_F(Command, JobShowPrintsMembersAndCounters) {
  Json job = kJob;
  job["schema"] = "mlnet.job/1";
  job["fan"] = {{"kind", "unicast"}, {"why", "multicast ping lost"}};
  job["shape"] = {{"name", "star"}, {"why", "star over a1 takes 1 ms."}};
  job["lag"] = {{{"child", 0}, {"rank", 0}, {"samples", 9}, {"mean_us", 12.34}}};
  job["pools"] = {{{"class", 0}, {"stream", 0}, {"log2_slots", 8}}};
  job["members"] = {{{"rank", 0},
                     {"host", "w1"},
                     {"address", "10.77.0.1"},
                     {"pid", 9},
                     {"joined", true},
                     {"ready", true},
                     {"stats",
                      {{"packets_sent", 100},
                       {"retransmits", 2},
                       {"summed_in_kernel", 100},
                       {"summed_in_user_space", 0},
                       {"rtt_us", 250}}}}};
  job["counters"] = {{"SUM_ADD", {{"count", 75}, {"action", "DROP"}, {"help", "contribution added"}}},
                     {"HELD", {{"count", 0}, {"action", "TX"}, {"help", "x"}}}};
  EXPECT_EQ(RunWith("job.show", job, {"job", "show", "demo"}), 0);
  EXPECT_EQ(
      out_,
      "job demo: ready, id 3, epoch 1, 4/4 ranks joined\n"
      "  aggregator  10.77.0.5\n"
      "  shape       star: star over a1 takes 1 ms.\n"
      "  results by  unicast (multicast ping lost)\n"
      "  pool        class 0 stream 0: 256 slots\n"
      "\n"
      "RANK  HOST  ADDRESS    PID  JOINED  READY  SENT  RESENT  IN KERNEL  IN USER SPACE  RTT us  LAG us\n"
      "   0  w1    10.77.0.1  9    yes     yes     100       2        100              0     250    12.3\n"
      "\n"
      "VERDICT  COUNT  ACTION  MEANING\n"
      "SUM_ADD     75  DROP    contribution added\n");
}

// Two racks of two hosts at 1 Gb/s, core 1:4: the planner's own tests say what is fastest; here, that it is asked rightly.
TEST_F(Command, PlanShowsTheCandidatesForTheDaemonsHosts) {
  Json task = {{"schema", "mlnet.plan.task/1"}, {"oversubscription", 4.0}, {"multicast", true}, {"mtu", 1500},
               {"has_rates", true},             {"shape", nullptr},        {"host_of_rank", {"w1", "w2", "w3", "w4"}}};
  task["hosts"] = Json::array();
  for (const auto& [host, rack] : {std::pair("w1", "r1"), {"w2", "r1"}, {"w3", "r2"}, {"w4", "r2"}}) {
    task["hosts"].push_back({{"name", host}, {"rack", rack}, {"rate_bps", 1e9}, {"can_aggregate", true}});
  }
  EXPECT_EQ(RunWith("plan", task, {"-j", "plan", "--hosts", "w1,w2,w3,w4"}), 0);
  EXPECT_THAT(daemon_.requests(), ElementsAre(R"(plan {"hosts":["w1","w2","w3","w4"],"job":"","ranks_per_host":1,"shape":""})"));
  // A rack's link takes S at 500 Mb/s, and a head's 2 S at 1 Gb/s no longer: one tree is enough.
  EXPECT_EQ(Json::parse(out_)["chosen"], "rack");
  EXPECT_EQ(err_, "");
}

TEST_F(Command, PlanSaysWhenNoRatesAreKnownAndTakesTheDaemonsRule) {
  Json task = {{"schema", "mlnet.plan.task/1"}, {"oversubscription", 0.0}, {"multicast", true}, {"mtu", 1500},
               {"has_rates", false},            {"shape", "workers"},      {"host_of_rank", {"w1", "w2"}}};
  task["hosts"] = {{{"name", "w1"}, {"rack", ""}, {"rate_bps", 1e10}, {"can_aggregate", true}},
                   {{"name", "w2"}, {"rack", ""}, {"rate_bps", 1e10}, {"can_aggregate", true}}};
  EXPECT_EQ(RunWith("plan", task, {"plan", "--job", "demo"}), 0);
  EXPECT_THAT(err_, HasSubstr("rates of the links are not known"));
  EXPECT_THAT(out_, HasSubstr("* workers"));
}

TEST_F(Command, PlanRefusesAnAnswerItDoesNotUnderstand) {
  EXPECT_EQ(RunWith("plan", Json{{"schema", "mlnet.plan.task/1"}}, {"plan"}), 1);
  EXPECT_THAT(err_, HasSubstr("is mlnetctl older than mlnetd"));
}

TEST_F(Command, JobDeleteNamesTheJob) {
  EXPECT_EQ(RunWith("job.delete", kJob, {"job", "delete", "demo"}), 0);
  EXPECT_THAT(daemon_.requests(), ElementsAre(R"(job.delete {"name":"demo"})"));
  EXPECT_EQ(err_, "job demo: deleted\n");
}

TEST_F(Command, JobSetSendsNumbersAndTexts) {
  EXPECT_EQ(RunWith("job.set", kJob, {"job", "set", "demo", "weight=3", "order=shortest", "mac=true"}), 0);
  EXPECT_THAT(daemon_.requests(), ElementsAre(R"(job.set {"mac":true,"name":"demo","order":"shortest","weight":3})"));
  EXPECT_EQ(err_, "job demo: weight=3 order=shortest mac=true\n");
}

TEST_F(Command, StatusOkShowsOneGlance) {
  EXPECT_EQ(RunWith("status", Status("ok", Json::array(), {kIface}, {kJob}), {"status"}), 0);
  EXPECT_THAT(out_, HasSubstr("mlnetd on w1 (instance w1): ok, pid 12, up 3 min 4 s\n"));
  EXPECT_THAT(out_, HasSubstr("eth0   yes       native"));
  EXPECT_THAT(out_, HasSubstr("demo  3   1      ready  4/4"));
  EXPECT_EQ(err_, "");
}

TEST_F(Command, StatusSuggestsTheNextStep) {
  EXPECT_EQ(RunWith("status", Status("ok", Json::array(), Json::array(), Json::array()), {"status"}), 0);
  EXPECT_EQ(err_, "\nnext: mlnetctl iface attach NAME\n");
}

TEST_F(Command, StatusDegradedExitsWith8AndShowsTheHint) {
  const Json problems = {{{"message", "eth0: program is gone"}, {"hint", "mlnetctl iface attach eth0"}}};
  EXPECT_EQ(RunWith("status", Status("degraded", problems, Json::array(), Json::array()), {"status"}), 8);
  EXPECT_THAT(out_, HasSubstr("  problem: eth0: program is gone\n    try: mlnetctl iface attach eth0\n"));
  EXPECT_EQ(err_, "\nnext: mlnetctl iface attach eth0\n");
}

TEST_F(Command, StatusWaitsUntilTheDaemonIsOk) {
  auto asked = std::make_shared<int>(0);
  const auto answer = [asked](const Json&) -> Result<Json> {
    return Status(++*asked < 3 ? "degraded" : "ok", Json::array(), Json::array(), Json::array());
  };
  EXPECT_EQ(RunWith("status", FakeDaemon::Answer(answer), {"status", "--wait", "60", "-j"}), 0);
  EXPECT_EQ(*asked, 3);
  EXPECT_THAT(out_, HasSubstr(R"("state":"ok")"));
}

Json Stats(uint64_t adds) {
  return {{"schema", "mlnet.stats/1"},
          {"bytes_in", 1514000},
          {"contributions", 1000},
          {"words_summed", 176000},
          {"results", 250},
          {"jobs", Json::object()},
          {"verdicts",
           {{"SUM_ADD", {{"count", adds}, {"action", "DROP"}, {"help", "contribution added"}}},
            {"SUM_FIRST", {{"count", 250}, {"action", "DROP"}, {"help", "first"}}},
            {"HELD", {{"count", 0}, {"action", "TX"}, {"help", "duplicate"}}}}}};
}

TEST_F(Command, StatsShowsCountersLargestFirst) {
  daemon_.On("stats", Stats(750));
  daemon_.Start();
  EXPECT_EQ(Run({"stats", "demo"}), 0);
  EXPECT_EQ(out_,
            "in 1.5 MB   contributions 1000   summed 1.4 MB   results 250\n"
            "  VERDICT    COUNT  ACTION  MEANING\n"
            "  SUM_ADD      750  DROP    contribution added\n"
            "  SUM_FIRST    250  DROP    first\n");
  EXPECT_THAT(daemon_.requests(), ElementsAre(R"(stats {"job":"demo"})"));
  EXPECT_EQ(Run({"-v", "stats"}), 0);
  EXPECT_THAT(out_, HasSubstr("  HELD           0  TX      duplicate\n"));
  EXPECT_EQ(Run({"-v", "stats", "d\x82mo"}), 0) << "an argument may be any bytes";
  EXPECT_THAT(err_, HasSubstr("d\xef\xbf\xbdmo"));
}

TEST_F(Command, StatsRepeatsAsJsonLines) {
  auto adds = std::make_shared<uint64_t>(0);
  const auto answer = [adds](const Json&) -> Result<Json> { return Stats(++*adds); };
  EXPECT_EQ(RunWith("stats", FakeDaemon::Answer(answer), {"stats", "-j", "-i", "0.01", "-c", "3"}), 0);
  std::istringstream lines(out_);
  uint64_t seen = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(Json::parse(line)["verdicts"]["SUM_ADD"]["count"], ++seen);
  }
  EXPECT_EQ(seen, 3u);
}

TEST_F(Command, StatsShowsRatesFromTheSecondLineOn) {
  EXPECT_EQ(RunWith("stats", Stats(750), {"stats", "-i", "0.01", "-c", "2"}), 0);
  EXPECT_THAT(out_, HasSubstr("in 0 B/s   contributions 0/s   summed 0 B/s   results 0/s\n"));
}

TEST_F(Command, VersionShowsBothSides) {
  EXPECT_EQ(RunWith("version",
                    Json{{"schema", "mlnet.version/1"},
                         {"version", "9.9"},
                         {"abi", 1},
                         {"proto", 1},
                         {"libbpf", "1.1"},
                         {"instance", "w1"},
                         {"host", "w1"}},
                    {"version"}),
            0);
  EXPECT_EQ(out_, "mlnetctl " MLNET_VERSION
                  "\nmlnetd 9.9 on w1 (instance w1), map layout 1, protocol 1, libbpf 1.1\n");
  EXPECT_THAT(err_, HasSubstr("same version"));
}

TEST_F(Command, VersionWorksWithoutADaemon) {
  EXPECT_EQ(Run({"version", "-j"}), 0);
  EXPECT_EQ(Json::parse(out_)["mlnetctl"], MLNET_VERSION);
  EXPECT_EQ(Json::parse(out_)["schema"], "mlnet.version/1");
}

TEST_F(Command, ProbeMergesTheDaemonsChecks) {
  const Json answer = {{"schema", "mlnet.probe/1"},
                       {"kernel", "x"},
                       {"checks",
                        {{{"name", "btf"}, {"ok", true}, {"detail", "of the daemon"}, {"hint", ""}},
                         {{"name", "multicast"}, {"ok", false}, {"detail", "no querier"}, {"hint", "h"}}}},
                       {"ifaces", {kIface}}};
  EXPECT_EQ(RunWith("probe", answer, {"probe", "-j"}), 1);
  const Json probe = Json::parse(out_);
  EXPECT_EQ(probe["schema"], "mlnet.probe/1");
  EXPECT_EQ(probe["daemon"], true);
  EXPECT_EQ(probe["ifaces"][0]["name"], "eth0");
  std::map<std::string, std::string> details;
  for (const Json& check : probe["checks"]) details[check["name"]] = check["detail"];
  EXPECT_EQ(details["btf"], "of the daemon");
  EXPECT_EQ(details.count("capabilities"), 0u);  // of this process: not what matters
  EXPECT_EQ(details["multicast"], "no querier");
  EXPECT_EQ(details.count("kernel"), 1u);
}

TEST_F(Command, ProbeJudgesTheKernelWithoutADaemon) {
  std::ostringstream out, err;
  // An empty tree: nothing that mlnet needs is there, so the kernel cannot run it.
  EXPECT_EQ(RunCli({"--socket", daemon_.socket(), "probe"}, out, err, {.kernel_root = "/nonexistent"}), 5);
  EXPECT_THAT(out.str(), HasSubstr("btf           not ok  no /sys/kernel/btf/vmlinux"));
  EXPECT_THAT(err.str(), HasSubstr("no daemon: interfaces not probed"));
}

}  // namespace
}  // namespace mlnet::ctl
