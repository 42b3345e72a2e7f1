// SPDX-License-Identifier: Apache-2.0
// Racks: the uplink's rate holds in both directions, its bytes are counted, its faults bite, and what is
// wrong in a topology is named.
#include <algorithm>
#include <chrono>

#include "lab_fixture.h"

namespace mlnet::lab_test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr uint16_t kPort = 9000;
constexpr milliseconds kDuration{1200};

// w1 and w2 in r1, w3 in r2, w4 in the core.
std::string Topology(const std::string& racks) {
  return "defaults: {rate: 400mbit}\n" + racks +
         "hosts: [{name: w1, rack: r1}, {name: w2, rack: r1}, {name: w3, rack: r2}, {name: w4}]\n";
}

Json RackStatus(const Lab& lab, const std::string& rack) {
  const Output status = RunLab({"-j", "--name", lab.name(), "status"});
  EXPECT_EQ(status.exit_code, 0) << status.err;
  const Json racks = Json::parse(status.out)["racks"];
  for (const Json& r : racks) {
    if (r["name"] == rack) return r;
  }
  ADD_FAILURE() << "no rack " << rack;
  return {};
}

// A switch floods what it has no port for; afterwards it knows where the two are.
void LetSwitchesLearn(const Lab& lab, const std::string& a, const std::string& b) {
  for (const auto& [from, to] : {std::pair{a, b}, {b, a}}) {
    Receiver receiver(lab.Netns(to), kPort + 1);
    SendPaced(lab.Netns(from), lab.Address(to), kPort + 1, 1, [&] { return receiver.count(); });
  }
}

bool AreQueuesEmpty(const Lab& lab) {
  const Output shown = lab.Exec("switch", {"tc", "-j", "-s", "qdisc", "show"});
  const Json queues = Json::parse(shown.out, nullptr, false);
  if (!queues.is_array()) return false;  // tc prints no JSON where a queue changes while it is listed
  for (const Json& queue : queues) {
    if (queue.value("qlen", 0) > 0) return false;
  }
  return true;
}

// Bits per second on the wire, after the shaper's burst.
double MeasuredRate(const std::vector<Arrival>& arrivals) {
  constexpr size_t kBurstPackets = 256 * 1024 / kFrameBytes;
  if (arrivals.size() < 2 * kBurstPackets) return 0;
  const auto& first = arrivals[kBurstPackets];
  const double seconds = static_cast<double>(arrivals.back().kernel_ns - first.kernel_ns) / 1e9;
  return static_cast<double>((arrivals.size() - 1 - kBurstPackets) * kFrameBytes * 8) / seconds;
}

struct Direction {
  const char* from;
  const char* to;
  double rate;
};

class Uplink : public testing::TestWithParam<Direction> {};

// r1: 2 * 400 / 8 = 100 Mb/s; r2: 60 Mb/s up, 80 Mb/s down.
TEST_P(Uplink, rate_holds_and_bytes_are_counted) {
  const Direction c = GetParam();
  const TextFile topology(
      Topology("core: {oversubscription: 8}\nracks: [{name: r1}, {name: r2, up: 60mbit, down: 80mbit}]\n"));
  const Lab lab({"--no-daemons", "--topology", topology.path()});
  lab.FixNeighbours();
  const auto r1 = RackStatus(lab, "r1"), r2 = RackStatus(lab, "r2");
  EXPECT_EQ(r1["up_bps"], 100'000'000);
  EXPECT_EQ(r1["down_bps"], 100'000'000);
  EXPECT_EQ(r1["hosts"], Json({"w1", "w2"}));
  EXPECT_EQ(r2["up_bps"], 60'000'000);
  EXPECT_EQ(r2["down_bps"], 80'000'000);
  Receiver receiver(lab.Netns(c.to), kPort);
  Flood(lab.Netns(c.from), lab.Address(c.to), kPort, kDuration);
  const bool is_rx = std::string(c.from) == "w4";
  const std::string rack = lab.HostStatus(is_rx ? c.to : c.from)["rack"];
  const auto counted = [&] { return RackStatus(lab, rack)[is_rx ? "rx" : "tx"]; };
  ASSERT_TRUE(WaitFor([&] { return AreQueuesEmpty(lab) && counted()["packets"] == receiver.count(); }));
  const auto& arrivals = receiver.Stop();
  const double measured = MeasuredRate(arrivals);
  RecordProperty("measured_bps", std::to_string(measured));
  EXPECT_LT(measured, c.rate * 1.03);
  EXPECT_GT(measured, c.rate * 0.90);
  EXPECT_EQ(counted()["bytes"], arrivals.size() * kFrameBytes);
  // Within a rack nothing passes the uplink.
  LetSwitchesLearn(lab, "w1", "w2");
  const Json before = counted();
  LetSwitchesLearn(lab, "w1", "w2");
  EXPECT_EQ(counted(), before);
}

INSTANTIATE_TEST_SUITE_P(Racks, Uplink,
                         testing::Values(Direction{"w1", "w4", 100e6}, Direction{"w4", "w2", 100e6},
                                         Direction{"w3", "w4", 60e6}, Direction{"w4", "w3", 80e6}),
                         [](const auto& direction) {
                           return std::string(direction.param.from) + "_to_" + direction.param.to;
                         });

TEST(Racks, multicast_reaches_every_rack_and_the_core) {
  const Lab lab(
      {"--no-daemons", "--workers", "4", "--racks", "3", "--rate", "100mbit", "--oversubscription", "1"});
  EXPECT_EQ(RackStatus(lab, "r1")["hosts"], Json({"w1", "w2"}));
  EXPECT_EQ(RackStatus(lab, "r3")["hosts"], Json({"w4"}));
  EXPECT_EQ(RackStatus(lab, "r1")["up_bps"], 200'000'000);
  Receiver w2(lab.Netns("w2"), kPort), w3(lab.Netns("w3"), kPort), w4(lab.Netns("w4"), kPort),
      a1(lab.Netns("a1"), kPort);
  for (const char* host : {"w2", "w3", "w4", "a1"})
    ASSERT_EQ(lab.Exec(host, {"ip", "addr", "add", "239.1.2.3/32", "dev", "eth0", "autojoin"}).exit_code, 0);
  SendPaced(lab.Netns("w1"), "239.1.2.3", kPort, 100,
            [&] { return std::min({w2.count(), w3.count(), w4.count(), a1.count()}); });
}

TEST(Racks, faults_of_an_uplink_hit_what_passes_it) {
  const TextFile topology(
      Topology("racks: [{name: r1, faults: {tx: {loss: 10}, delay: 1ms}}, {name: r2}]\n"));
  const Lab lab({"--no-daemons", "--topology", topology.path()});
  lab.FixNeighbours();
  const auto link = [&](const std::string& direction) {
    return lab.Fault({"show", "r1"})["racks"][0][direction];
  };
  LetSwitchesLearn(lab, "w1", "w2");
  lab.Fault({"set", "r1", "--seed", "1"});  // counts anew
  Receiver inside(lab.Netns("w2"), kPort), outside(lab.Netns("w3"), kPort);
  SendPaced(lab.Netns("w1"), lab.Address("w2"), kPort, 200, [&] { return inside.count(); });
  EXPECT_EQ(link("tx")["frames"], 0);
  SendPaced(lab.Netns("w1"), lab.Address("w3"), kPort, 1000,
            [&] { return outside.count() + link("tx")["lost"].get<uint64_t>(); });
  EXPECT_EQ(link("tx")["frames"], 1000);
  EXPECT_EQ(link("tx")["held"].get<uint64_t>() + link("tx")["lost"].get<uint64_t>(), 1000u);
  EXPECT_GT(link("tx")["lost"].get<uint64_t>(), 60u);
  EXPECT_LT(link("tx")["lost"].get<uint64_t>(), 140u);
  EXPECT_EQ(link("rx")["loss_ppm"], 0);
  EXPECT_EQ(link("rx")["delay_us"], 1000);
  const Json cleared = lab.Fault({"clear", "r1"});
  EXPECT_EQ(cleared["racks"][0]["tx"]["loss_ppm"], 0);
  EXPECT_EQ(cleared["hosts"].size(), 0u);
  EXPECT_EQ(lab.Fault({"set", "all", "--loss", "1"})["racks"][1]["rx"]["loss_ppm"], 10'000);
}

TEST(Racks, nothing_is_left_after_down) {
  const std::string name = FreshName();
  ASSERT_EQ(RunLab({"--name", name, "up", "--no-daemons", "--workers", "2", "--racks", "2"}).exit_code, 0);
  std::filesystem::remove("/run/mlnet-lab/" + name + "/state.json");
  ASSERT_EQ(RunLab({"--name", name, "down"}).exit_code, 0);
  for (const auto& entry : std::filesystem::directory_iterator("/run/netns"))
    EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr("ml-" + name + "-")));
}

TEST(RackMistakes, each_is_named) {
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {Topology("racks: [{name: r1}]\n"), "host 'w3': unknown rack 'r2'"},
           {Topology("racks: [{name: r1}, {name: r2}, {name: r3}]\n"), "rack 'r3' has no host"},
           {Topology("racks: [{name: r1}, {name: r2}, {name: r1}]\n"), "rack 'r1' has a name that is taken"},
           {Topology("racks: [{name: r1, speed: 1gbit}, {name: r2}]\n"), "racks[0]: unknown key 'speed'"},
           {Topology("racks: [{name: r1, up: fast}, {name: r2}]\n"), "racks[0].up: 'fast' is not a rate"},
           {Topology("core: {oversubscription: -1}\n"), "oversubscription -1 is out of range"},
           {Topology("core: {ratio: 4}\n"), "core: unknown key 'ratio'"},
           {"core: {oversubscription: 4}\nhosts: [{name: w1, rack: r1}]\n",
            "rack 'r1': oversubscription 4 of what? Not all of its hosts have a rate"},
           {"hosts: [{name: w1, rack: w1}]\n", "rack 'w1' has a name that is taken"},
           {"hosts: [{name: w1, rack: Rack-1}]\n", "'Rack-1' is not a valid rack name"},
       }) {
    const TextFile file(text);
    const Output up = RunLab({"--name", FreshName(), "up", "--no-daemons", "--topology", file.path()});
    EXPECT_EQ(up.exit_code, 2) << text;
    EXPECT_THAT(up.err, HasSubstr(says)) << text;
  }
  const Output flags =
      RunLab({"--name", FreshName(), "up", "--no-daemons", "--workers", "2", "--racks", "3"});
  EXPECT_EQ(flags.exit_code, 2);
  EXPECT_THAT(flags.err, HasSubstr("--racks 3: there are 2 workers"));
}

}  // namespace
}  // namespace mlnet::lab_test
