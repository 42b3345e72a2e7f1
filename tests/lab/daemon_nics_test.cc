// SPDX-License-Identifier: Apache-2.0
// Hosts as they are: NICs of different names, docker's bridge, taps, macvlans. Which carry the program, which are
// left out and why, and that sums come out. Bonds and VLANs are not in this kernel: nic_path_test.
#include "lab/daemon_fixture.h"

namespace mlnet::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DaemonNics : public ::testing::Test {
 protected:
  void Ip(const std::string& host, const std::string& arguments) {
    const Ran ran = Shell("ip -n " + lab_.Netns(host) + " " + arguments);
    ASSERT_EQ(ran.exit_code, 0) << arguments << "\n" << ran.output;
  }

  Json Iface(const std::string& host, const std::string& name) {
    const Json list = lab_.Call(host, "iface.list");
    for (const Json& iface : list["ifaces"]) {
      if (iface["name"] == name) return iface;
    }
    return Json::object();
  }

  void ExpectJobSums(const std::string& job) {
    auto ranks = lab_.Join(job, {{"w1", 0}, {"w2", 1}});
    for (const Joined& rank : ranks) ASSERT_TRUE(rank.ok) << rank.error.ToString();
    for (uint64_t seq = 0; seq < 20; ++seq) ASSERT_NO_FATAL_FAILURE(lab_.ExpectSum(ranks, seq));
    lab_.Leave(ranks);
  }

  DaemonLab lab_{{"w1", "w2", "a1"}};
};

TEST_F(DaemonNics, hosts_may_call_their_nics_differently) {
  Ip("w1", "link set eth0 down name ens3np0.77");
  Ip("w1", "link set ens3np0.77 up");
  lab_.UseIface("name = \"ens3np0.77\"");
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  lab_.UseIface("match = \"eth,ib\"");
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w2"));
  ASSERT_NO_FATAL_FAILURE(lab_.Start("a1"));
  ExpectJobSums("demo");
}

TEST_F(DaemonNics, all_that_match_carry_the_program_and_the_others_have_a_reason) {
  Ip("w1", "link add docker0 type bridge");
  Ip("w1", "link add br1 type bridge");
  Ip("w1", "link add ens7 type veth peer name ens8");
  Ip("w1", "link set ens8 master br1");
  Ip("w1", "tuntap add tap0 mode tap");
  lab_.UseIface("match = \"^docker,lo\"");
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  EXPECT_EQ(Iface("w1", "eth0")["attached"], true);
  EXPECT_THAT(Iface("w1", "eth0")["devices"], ElementsAre("eth0"));
  EXPECT_EQ(Iface("w1", "ens7")["attached"], true);
  const std::pair<const char*, const char*> left_out[] = {
      {"docker0", ""}, {"br1", "br1 is a bridge"}, {"ens8", "ens8 belongs to the bridge br1"}, {"tap0", "tap0 is a tun or tap"}};
  for (const auto& [name, why] : left_out) {
    EXPECT_EQ(Iface("w1", name)["attached"], false) << name;
    EXPECT_THAT(Iface("w1", name)["why"].get<std::string>(), HasSubstr(why));
  }
  EXPECT_EQ(lab_.Call("w1", "status")["state"], "ok");
  EXPECT_THAT(lab_.Log("w1"), HasSubstr("tap0 matches, but is left out: tap0 is a tun or tap"));
  ExpectJobSums("demo");
}

TEST_F(DaemonNics, a_nic_that_matches_may_come_and_go) {
  lab_.UseIface("match = \"eth\"");
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  Ip("w1", "link add eth7 type veth peer name other");
  ASSERT_TRUE(WaitUntil([&] { return Iface("w1", "eth7").value("attached", false); }));
  Ip("w1", "link del eth7");
  ASSERT_TRUE(WaitUntil([&] { return lab_.Log("w1").find("eth7: the program is gone") != std::string::npos; }));
  EXPECT_EQ(lab_.Call("w1", "status")["state"], "ok");
}

TEST_F(DaemonNics, an_operator_attaches_several_at_once) {
  Ip("w1", "link add eth1 type veth peer name far1");
  Ip("w1", "link add docker0 type bridge");
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  const Json done = lab_.Call("w1", "iface.attach", {{"match", "=eth0,=eth1,=docker0"}});
  ASSERT_EQ(done["ifaces"].size(), 2u) << done;
  EXPECT_EQ(done["skipped"][0]["name"], "docker0");
  EXPECT_EQ(Iface("w1", "eth1")["attached"], true);
  const Error none = lab_.CallError("w1", "iface.attach", {{"match", "ens"}});
  EXPECT_EQ(none.code, ErrorCode::kUnavailable);
  EXPECT_THAT(none.hint, HasSubstr("eth0"));
  EXPECT_EQ(lab_.CallError("w1", "iface.attach", {{"match", "eth0,^lo"}}).code, ErrorCode::kInvalidArgument);
}

TEST_F(DaemonNics, what_cannot_carry_the_program_is_refused_by_what_it_is) {
  Ip("w1", "link add mv0 link eth0 type macvlan mode bridge");
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  EXPECT_THAT(lab_.CallError("w1", "iface.attach", {{"name", "lo"}}).message, HasSubstr("lo is the loopback"));
  const Error macvlan = lab_.CallError("w1", "iface.attach", {{"name", "mv0"}});
  EXPECT_EQ(macvlan.code, ErrorCode::kUnsupported);
  EXPECT_THAT(macvlan.message, HasSubstr("mv0 is a macvlan on eth0"));
  EXPECT_THAT(macvlan.hint, AllOf(HasSubstr("eth0"), HasSubstr("--mode generic")));
}

TEST_F(DaemonNics, generic_mode_that_was_asked_for_is_no_problem) {
  lab_.UseIface("name = \"eth0\"\nmode = \"generic\"");
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  EXPECT_EQ(Iface("w1", "eth0")["mode"], "generic");
  EXPECT_EQ(lab_.Call("w1", "status")["state"], "ok") << lab_.Call("w1", "status")["problems"];
}

// Also the way of a VLAN, which this kernel has not: an interface above the driver, which no native redirect reaches.
TEST_F(DaemonNics, ranks_of_one_host_are_combined_before_a_nic_in_generic_mode) {
  for (const char* host : {"w1", "w2", "a1"}) {
    Ip(host, "link add mv0 link eth0 type macvlan mode bridge");
    Ip(host, "addr del " + lab_.Address(host) + "/24 dev eth0");
    Ip(host, "addr add " + lab_.Address(host) + "/24 dev mv0");
    Ip(host, "link set mv0 up");
    Ip(host, "link set eth0 arp off");  // its link address is not the address's
  }
  lab_.UseIface("name = \"mv0\"\nmode = \"auto\"");
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  EXPECT_EQ(Iface("w1", "mv0")["mode"], "generic");
  EXPECT_THAT(Iface("w1", "mv0")["why"].get<std::string>(), HasSubstr("mv0 is a macvlan on eth0"));
  const Json status = lab_.Call("w1", "status");
  EXPECT_EQ(status["state"], "degraded");
  EXPECT_THAT(status["problems"].dump(), HasSubstr("mv0 runs in generic mode"));
  auto ranks = lab_.Join("demo", {{"w1", 0, 3}, {"w1", 1, 3}, {"w2", 2, 3}});
  for (const Joined& rank : ranks) ASSERT_TRUE(rank.ok) << rank.error.ToString();
  for (uint64_t seq = 0; seq < 20; ++seq) {
    for (size_t i = 0; i < 3; ++i) lab_.Contribute(i == 2 ? "w2" : "w1", ranks[i], seq, seq << i);
    for (Joined& rank : ranks) {
      const volatile mlnet_cell& cell = rank.MapInbox()[seq * 2];
      const uint64_t stamp = MLNET_STAMP(rank.reply.result["epoch"].get<uint64_t>(), seq);
      ASSERT_TRUE(WaitUntil([&] { return cell.published == stamp; })) << "no result of " << seq;
      EXPECT_EQ(cell.w[0], seq * 7);
    }
  }
  // One of w1 and one of w2 each time. (The job's counters have those of other hosts too, as of their last second.)
  EXPECT_EQ(lab_.Call("a1", "stats")["contributions"], 40);
}

}  // namespace
}  // namespace mlnet::test
