// SPDX-License-Identifier: Apache-2.0
// Queues by priority on a host's NIC: what the kernel has is set, what was there comes back, and nothing is half done.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <csignal>

#include "lab/daemon_fixture.h"
#include "wire/packet.h"

namespace mlnet::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class DaemonQos : public ::testing::Test {
 protected:
  std::string Tc(const std::string& command) { return Shell("tc -n " + lab_.Netns("w1") + " " + command).output; }
  std::string Qdiscs() { return Tc("qdisc show dev eth0") + Tc("class show dev eth0") + Tc("filter show dev eth0"); }
  bool HasKind(const std::string& kind) {
    const Ran ran = Shell("tc -n " + lab_.Netns("w2") + " qdisc add dev eth0 root " + kind);
    if (ran.exit_code == 0) Shell("tc -n " + lab_.Netns("w2") + " qdisc del dev eth0 root");
    return ran.exit_code == 0;
  }
  static Json RowOf(const Json& shown, const Json& traffic_class) {
    for (const Json& row : shown["classes"]) {
      if (row["class"] == traffic_class) return row;
    }
    return nullptr;
  }

  DaemonLab lab_{{"w1", "w2", "a1"}};
};

// Whatever was the root, kernel's choice or an operator's, clear brings back the same.
TEST_F(DaemonQos, what_was_there_comes_back_exactly) {
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  for (const char* root : {"", "handle 5: pfifo limit 77", "handle 9: pfifo_fast", "handle abc: bfifo limit 123456"}) {
    if (*root != '\0') {
      ASSERT_EQ(Tc(std::string("qdisc replace dev eth0 root ") + root), "");
    }
    const std::string before = Qdiscs();
    const Json set = lab_.Call("w1", "qos.set", {{"name", "eth0"}, {"rate", "1gbit"}});
    EXPECT_EQ(set["is_set"], true);
    EXPECT_THAT(Qdiscs(), HasSubstr("6d6c:"));
    const Json cleared = lab_.Call("w1", "qos.clear", {{"name", "eth0"}});
    EXPECT_EQ(cleared["is_set"], false);
    EXPECT_EQ(Qdiscs(), before) << root;
    EXPECT_EQ(lab_.Call("w1", "qos.clear", {{"name", "eth0"}})["is_set"], false) << "again is nothing";
    EXPECT_EQ(Qdiscs(), before);
  }
}

TEST_F(DaemonQos, the_mapping_is_shown_and_packets_take_it) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  lab_.Call("w1", "job.create", {{"name", "j"}, {"world_size", 2}, {"classes", 6}});
  auto ranks = lab_.Join("j", {{"w1", 0}, {"w2", 1}});
  ASSERT_TRUE(ranks[0].ok) << ranks[0].error.ToString();
  const Json set = lab_.Call("w1", "qos.set", {{"name", "eth0"}, {"kind", "htb"}, {"rate", "1gbit"}});
  EXPECT_EQ(set["mode"], "strict");
  EXPECT_EQ(set["qdisc"], "htb");
  EXPECT_THAT(set["note"], HasSubstr("next hop"));
  const Json row = RowOf(set, 5);
  EXPECT_EQ(row["dscp"], 40);
  EXPECT_EQ(row["band"], 2);
  EXPECT_EQ(row["queue"], "6d6c:12");
  EXPECT_EQ(RowOf(set, "waiting jobs")["dscp"], 1);
  EXPECT_EQ(lab_.Call("w1", "qos.show", {{"name", "eth0"}})["ifaces"][0]["classes"], set["classes"]);
  lab_.Contribute("w1", ranks[0], 0, 1, 7, 5);
  const auto sent = [&](const std::string& classid) {
    const std::string text = Tc("-s class show dev eth0 classid " + classid);
    const size_t at = text.find("Sent ");
    return at == std::string::npos ? -1 : std::stol(text.substr(at + 5));
  };
  EXPECT_TRUE(WaitUntil([&] { return sent("6d6c:12") > 0; })) << Tc("-s class show dev eth0");
  EXPECT_EQ(sent("6d6c:11"), 0);
}

TEST_F(DaemonQos, weights_are_shares_of_the_rate) {
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  const Json weights = {1, 1, 2, 2, 4, 4, 8, 8};
  const Json set = lab_.Call("w1", "qos.set", {{"name", "eth0"}, {"kind", "htb"}, {"weights", weights}, {"rate", "310mbit"}});
  EXPECT_EQ(set["mode"], "weighted");
  EXPECT_EQ(RowOf(set, 7)["weight"], 8);
  // 8 of 31 parts, the last one of jobs that wait.
  EXPECT_THAT(Tc("class show dev eth0 classid 6d6c:10"), HasSubstr("rate 80Mbit ceil 310Mbit"));
  EXPECT_THAT(Tc("class show dev eth0 classid 6d6c:18"), HasSubstr("rate 10Mbit ceil 310Mbit"));
  EXPECT_THAT(lab_.CallError("w1", "qos.set", {{"name", "eth0"}, {"weights", {1, 2, 3}}}).message, HasSubstr("8 numbers"));
}

TEST_F(DaemonQos, what_the_kernel_lacks_is_an_error_and_nothing_is_half_set) {
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  ASSERT_EQ(Tc("qdisc replace dev eth0 root handle 5: pfifo limit 77"), "");
  const std::string before = Qdiscs();
  for (const char* kind : {"prio", "ets", "mqprio"}) {
    if (HasKind(kind)) continue;
    const Error error = lab_.CallError("w1", "qos.set", {{"name", "eth0"}, {"kind", kind}});
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(error.message, HasSubstr(kind));
    EXPECT_EQ(Qdiscs(), before) << kind;
  }
  EXPECT_EQ(lab_.CallError("w1", "qos.set", {{"name", "eth0"}, {"kind", "cake"}}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(lab_.CallError("w1", "qos.set", {{"name", "eth9"}}).code, ErrorCode::kUnsupported);
  EXPECT_EQ(Qdiscs(), before);
  EXPECT_EQ(lab_.Call("w1", "qos.show")["ifaces"][0]["is_set"], false);
}

TEST_F(DaemonQos, classes_of_somebody_else_are_refused_as_they_would_be_lost) {
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  ASSERT_EQ(Tc("qdisc add dev eth0 root handle 1: htb default 1"), "");
  ASSERT_EQ(Tc("class add dev eth0 parent 1: classid 1:1 htb rate 1mbit"), "");
  const std::string before = Qdiscs();
  const Error error = lab_.CallError("w1", "qos.set", {{"name", "eth0"}, {"rate", "1gbit"}});
  EXPECT_EQ(error.code, ErrorCode::kConflict);
  EXPECT_THAT(error.message, HasSubstr("htb"));
  EXPECT_EQ(Qdiscs(), before);
}

TEST_F(DaemonQos, the_end_of_the_daemon_undoes_it_and_so_does_the_next_one_after_a_crash) {
  ASSERT_EQ(Tc("qdisc replace dev eth0 root handle 5: pfifo limit 77"), "");
  const std::string before = Qdiscs();
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  lab_.Call("w1", "qos.set", {{"name", "eth0"}, {"rate", "1gbit"}});
  lab_.Signal("w1", SIGTERM);
  EXPECT_EQ(Qdiscs(), before);
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  lab_.Call("w1", "qos.set", {{"name", "eth0"}, {"rate", "1gbit"}});
  lab_.Signal("w1", SIGKILL);
  EXPECT_THAT(Qdiscs(), HasSubstr("6d6c:"));
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  EXPECT_EQ(Qdiscs(), before);
  // Detached, nothing is marked, and there is nothing to queue by.
  lab_.Call("w1", "qos.set", {{"name", "eth0"}, {"rate", "1gbit"}});
  lab_.Call("w1", "iface.detach", {{"name", "eth0"}});
  EXPECT_EQ(Qdiscs(), before);
}

TEST_F(DaemonQos, what_somebody_has_put_there_since_is_left) {
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1"));
  lab_.Call("w1", "qos.set", {{"name", "eth0"}, {"rate", "1gbit"}});
  ASSERT_EQ(Tc("qdisc replace dev eth0 root handle 7: pfifo limit 5"), "");
  const std::string theirs = Qdiscs();
  EXPECT_EQ(lab_.CallError("w1", "qos.clear", {{"name", "eth0"}}).code, ErrorCode::kConflict);
  EXPECT_EQ(Qdiscs(), theirs);
}

}  // namespace
}  // namespace mlnet::test
