// SPDX-License-Identifier: Apache-2.0
// The DSCP of what leaves a host, as the switch sees it, with real daemons: of contributions, of results, and of
// processes that set it themselves.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "lab/capture.h"
#include "lab/daemon_fixture.h"
#include "wire/packet.h"

namespace mlnet::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint16_t kOtherPort = 9999;
constexpr uid_t kStranger = 12345;

// A datagram as any process could make it.
struct Forged {
  uint16_t job = 0;
  uint16_t epoch = 1;
  uint8_t traffic_class = 0;
  int dscp = 0;
  uint16_t port = MLNET_UDP_PORT;
  uid_t uid = 0;
};

class DaemonTags : public ::testing::Test {
 protected:
  void SetUp() override {
    lab_.In("sw", [&] { capture_ = std::make_unique<Capture>("p-w1"); });
  }

  void Open(const Json& spec = Json::object()) {
    Json params = spec;
    params.update({{"name", "j"}, {"world_size", 2}});
    if (!params.contains("classes")) params["classes"] = 6;
    lab_.Call("w1", "job.create", params);
    ranks_ = lab_.Join("j", {{"w1", 0}, {"w2", 1}});
    for (const Joined& rank : ranks_) ASSERT_TRUE(rank.ok) << rank.error.ToString();
    job_ = ranks_[0].reply.result["job_id"];
    epoch_ = ranks_[0].reply.result["epoch"];
    capture_->Take();
  }

  // All of `wanted` have been seen; says what was seen last otherwise.
  bool Sees(const Seen& wanted) {
    return WaitUntil([&] {
      for (const Seen& seen : capture_->Take()) seen_.push_back(seen);
      return std::find(seen_.begin(), seen_.end(), wanted) != seen_.end();
    });
  }
  Seen FromW1(uint8_t dscp, uint8_t type, uint8_t traffic_class) const {
    return {false, static_cast<uint8_t>(dscp << 2), true, MLNET_UDP_PORT, type, job_, traffic_class};
  }
  Seen ToW1(uint8_t dscp, uint8_t type, uint8_t traffic_class) const {
    Seen seen = FromW1(dscp, type, traffic_class);
    seen.is_out = true;
    return seen;
  }

  uint64_t Count(const std::string& host, int traffic_class, const std::string& outcome) {
    const Json stats = lab_.Call(host, "stats");
    for (const Json& row : stats["tags"]) {
      if (row["class"] == traffic_class && row["outcome"] == outcome) return row["packets"];
    }
    return 0;
  }

  void Send(const Forged& forged) {
    mlnet_hdr header{};
    header.version_type = wire::VersionType(MLNET_T_CONTRIB);
    header.job = forged.job;
    header.epoch = forged.epoch;
    header.class_stream = MLNET_CLASS_STREAM(forged.traffic_class, 0);
    header.flags = MLNET_F_NO_PAYLOAD;
    header.words = 16;
    header.child = 63;  // nobody takes it for a contribution
    std::vector<std::byte> bytes(wire::kPacketBytesMax);
    bytes.resize(wire::Seal(header, {}, mlnet_trailer{}, bytes));
    lab_.In("w1", [&] {
      const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      const int tos = forged.dscp << 2;
      ASSERT_EQ(::setsockopt(socket.get(), IPPROTO_IP, IP_TOS, &tos, sizeof(tos)), 0);
      ASSERT_EQ(::fchown(socket.get(), forged.uid, static_cast<gid_t>(-1)), 0);  // as if that user had opened it
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(forged.port);
      inet_pton(AF_INET, lab_.Address("a1").c_str(), &to.sin_addr);
      ASSERT_EQ(::sendto(socket.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
                static_cast<ssize_t>(bytes.size()));
    });
  }

  std::string Tc(const std::string& command) { return Shell("tc -n " + lab_.Netns("w1") + " " + command).output; }
  bool HasNote() const {
    std::error_code ec;
    for (const auto& file : std::filesystem::directory_iterator(lab_.Path("w1.state"), ec)) {
      if (file.path().string().ends_with(".nics.json")) return true;
    }
    return false;
  }

  DaemonLab lab_{{"w1", "w2", "a1"}};
  std::unique_ptr<Capture> capture_;
  std::vector<Seen> seen_;
  std::vector<Joined> ranks_;
  uint16_t job_ = 0, epoch_ = 0;
};

TEST_F(DaemonTags, contributions_and_results_carry_the_dscp_of_their_class) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  ASSERT_NO_FATAL_FAILURE(Open());
  EXPECT_EQ(lab_.Call("w1", "status")["problems"], Json::array());
  for (uint8_t traffic_class = 0; traffic_class < 6; ++traffic_class) {
    // The first packet of a class asks for its words, and is lost.
    const auto contribute = [&] {
      lab_.Contribute("w1", ranks_[0], 0, 1, 7, traffic_class);
      lab_.Contribute("w2", ranks_[1], 0, 2, 7, traffic_class);
    };
    const uint8_t dscp = static_cast<uint8_t>(8 * traffic_class);
    const Seen result = ToW1(dscp, MLNET_T_RESULT, traffic_class);
    EXPECT_TRUE(WaitUntil([&] {
      contribute();
      for (const Seen& seen : capture_->Take()) seen_.push_back(seen);
      return std::find(seen_.begin(), seen_.end(), result) != seen_.end();
    })) << int{traffic_class};
    EXPECT_TRUE(Sees(FromW1(dscp, MLNET_T_CONTRIB, traffic_class))) << int{traffic_class};
  }
  for (const Seen& seen : seen_) EXPECT_EQ(seen.tos, seen.class_stream * 32) << int{seen.type};
  EXPECT_GT(Count("w1", 0, "TAGGED"), 0u);
  EXPECT_GT(Count("w1", 5, "OVERRULED"), 0u) << "the test's sockets set no DSCP";
}

TEST_F(DaemonTags, a_process_cannot_promote_itself) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  ASSERT_NO_FATAL_FAILURE(Open());
  Send({.job = job_, .epoch = epoch_, .traffic_class = 1, .dscp = 46});
  EXPECT_TRUE(Sees(FromW1(8, MLNET_T_CONTRIB, 1)));
  EXPECT_EQ(Count("w1", 1, "OVERRULED"), 1u);
  // A class that is not the job's.
  Send({.job = job_, .epoch = epoch_, .traffic_class = 7, .dscp = 56});
  EXPECT_TRUE(Sees(FromW1(0, MLNET_T_CONTRIB, 7)));
  EXPECT_EQ(Count("w1", 7, "NO_CLASS"), 1u);
  // A job that this host has no part in.
  Send({.job = static_cast<uint16_t>(job_ + 1), .epoch = epoch_, .traffic_class = 5, .dscp = 46});
  Seen unknown = FromW1(0, MLNET_T_CONTRIB, 5);
  ++unknown.job;
  EXPECT_TRUE(Sees(unknown));
  EXPECT_EQ(Count("w1", 5, "UNKNOWN_JOB"), 1u);
  // Somebody else's job.
  Send({.job = job_, .epoch = epoch_, .traffic_class = 4, .dscp = 32, .uid = kStranger});
  EXPECT_TRUE(Sees(FromW1(0, MLNET_T_CONTRIB, 4)));
  EXPECT_EQ(Count("w1", 4, "FOREIGN"), 1u);
  // What is not mlnet's keeps its own.
  Send({.job = job_, .epoch = epoch_, .traffic_class = 1, .dscp = 46, .port = kOtherPort});
  Seen other = FromW1(46, MLNET_T_CONTRIB, 1);
  other.port = kOtherPort;
  EXPECT_TRUE(Sees(other));
  EXPECT_EQ(Count("w1", 1, "OVERRULED"), 1u);
}

TEST_F(DaemonTags, the_ceiling_of_a_job_changes_while_it_runs) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  ASSERT_NO_FATAL_FAILURE(Open({{"ceiling", 3}}));
  Send({.job = job_, .epoch = epoch_, .traffic_class = 5, .dscp = 40});
  EXPECT_TRUE(Sees(FromW1(24, MLNET_T_CONTRIB, 5)));
  lab_.Call("a1", "job.set", {{"name", "j"}, {"ceiling", 1}});
  EXPECT_TRUE(WaitUntil([&] {
    Send({.job = job_, .epoch = epoch_, .traffic_class = 5, .dscp = 40});
    const auto seen = capture_->Take();
    return std::find(seen.begin(), seen.end(), FromW1(8, MLNET_T_CONTRIB, 5)) != seen.end();
  }));
  EXPECT_THAT(lab_.CallError("a1", "job.set", {{"name", "j"}, {"ceiling", 8}}).message, HasSubstr("ceiling is 8"));
}

TEST_F(DaemonTags, the_table_of_the_configuration_is_used) {
  for (const char* host : {"w1", "w2", "a1"}) {
    ASSERT_NO_FATAL_FAILURE(lab_.Start(host, "[priority]\ndscp = [0, 10, 18, 26, 34, 46, 48, 56]\n"));
  }
  ASSERT_NO_FATAL_FAILURE(Open());
  const Seen result = ToW1(46, MLNET_T_RESULT, 5);
  EXPECT_TRUE(WaitUntil([&] {
    lab_.Contribute("w1", ranks_[0], 0, 1, 7, 5);
    lab_.Contribute("w2", ranks_[1], 0, 2, 7, 5);
    const auto seen = capture_->Take();
    return std::find(seen.begin(), seen.end(), result) != seen.end();
  }));
}

TEST_F(DaemonTags, clsact_is_shared_with_others_and_left_as_it_was) {
  const std::string before = Tc("qdisc show dev eth0");
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1", "[priority]\nattach = \"clsact\"\n"));
  EXPECT_THAT(Tc("filter show dev eth0 egress"), HasSubstr("ml_tag"));
  EXPECT_EQ(lab_.Call("w1", "iface.list")["ifaces"][0]["tags"], "clsact");
  EXPECT_TRUE(HasNote());
  lab_.Signal("w1", SIGTERM);
  EXPECT_EQ(Tc("qdisc show dev eth0"), before);
  EXPECT_FALSE(HasNote());
  // Somebody has come to use the qdisc that was ours: it stays, with what is theirs.
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1", "[priority]\nattach = \"clsact\"\n"));
  ASSERT_EQ(Tc("filter add dev eth0 ingress prio 7 protocol all u32 match u32 0 0 flowid :1"), "");
  lab_.Call("w1", "iface.detach", {{"name", "eth0"}});
  EXPECT_THAT(Tc("qdisc show dev eth0"), HasSubstr("clsact"));
  EXPECT_THAT(Tc("filter show dev eth0 ingress"), HasSubstr("u32"));
  EXPECT_THAT(Tc("filter show dev eth0 egress"), Not(HasSubstr("ml_tag")));
}

TEST_F(DaemonTags, a_filter_that_a_killed_daemon_left_is_taken_away_by_the_next_one) {
  const std::string before = Tc("qdisc show dev eth0");
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1", "[priority]\nattach = \"clsact\"\n"));
  lab_.Signal("w1", SIGKILL);
  EXPECT_THAT(Tc("filter show dev eth0 egress"), HasSubstr("ml_tag"));
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1", "[priority]\nattach = \"off\"\n"));
  EXPECT_EQ(Tc("qdisc show dev eth0"), before);
  EXPECT_EQ(Tc("filter show dev eth0 egress"), "");
  EXPECT_FALSE(HasNote());
}

TEST_F(DaemonTags, a_place_that_is_taken_is_a_warning_and_no_outage) {
  ASSERT_EQ(Tc("qdisc add dev eth0 clsact"), "");
  ASSERT_EQ(Tc("filter add dev eth0 egress handle 0x6d6c prio 28 bpf da bytecode '1,6 0 0 4294967295'"), "");
  ASSERT_NO_FATAL_FAILURE(lab_.Start("w1", "[priority]\nattach = \"clsact\"\n"));
  const Json status = lab_.Call("w1", "status");
  EXPECT_EQ(status["ifaces"][0]["attached"], true);
  EXPECT_EQ(status["ifaces"][0]["tags"], nullptr);
  EXPECT_THAT(status["problems"].dump(), HasSubstr("somebody else's filter"));
  const std::string theirs = Tc("filter show dev eth0 egress");
  lab_.Signal("w1", SIGTERM);
  EXPECT_EQ(Tc("filter show dev eth0 egress"), theirs);
}

}  // namespace
}  // namespace mlnet::test
