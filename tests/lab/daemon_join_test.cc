// SPDX-License-Identifier: Apache-2.0
// Ranks meet through their daemons, the kernel sums what they send, and every way in which a job cannot
// begin or go on is told to every rank, by name.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "lab/daemon_fixture.h"

namespace mlnet::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class DaemonJoin : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(lab_.StartAll()); }

  std::vector<Joined> JoinTwo(const std::string& job) { return lab_.Join(job, {{"w1", 0}, {"w2", 1}}); }

  // Where a busy daemon tells of the probe later than the root waits for it, the job makes copies: that one is left for another.
  std::vector<Joined> JoinTwoByMulticast(const std::string& job) {
    std::vector<Joined> ranks;
    EXPECT_TRUE(WaitUntil([&] {
      lab_.Leave(ranks);
      ranks = JoinTwo(job);
      return !ranks[0].ok || !ranks[1].ok || ranks[0].reply.result["multicast"] == true;
    }));
    return ranks;
  }

  void ExpectSum(std::vector<Joined>& ranks, uint64_t seq) { lab_.ExpectSum(ranks, seq); }

  DaemonLab lab_{{"w1", "w2", "a1"}};
};

TEST_F(DaemonJoin, two_hosts_join_and_the_sum_arrives_by_multicast) {
  auto ranks = JoinTwoByMulticast("demo");
  for (const Joined& rank : ranks) {
    ASSERT_TRUE(rank.ok) << rank.error.ToString();
    EXPECT_EQ(rank.reply.fds.size(), 4u) << "inbox, wake map, ring, and the membership of the group";
    EXPECT_EQ(rank.reply.result["trees"][0]["aggregator"], lab_.Address("a1"));
    EXPECT_EQ(rank.reply.result["blocks"], 11);
  }
  EXPECT_EQ(ranks[1].reply.result["trees"][0]["address"], lab_.Address("w2"));
  EXPECT_EQ(ranks[0].reply.result["multicast"], true);
  for (uint64_t seq = 0; seq < 20; ++seq) ASSERT_NO_FATAL_FAILURE(ExpectSum(ranks, seq));
  const Json shown = lab_.Call("a1", "job.show", {{"name", "demo"}});
  EXPECT_EQ(shown["state"], "ready");
  EXPECT_EQ(shown["fan"]["kind"], "multicast");
  EXPECT_EQ(shown["counters"]["SUM_FIRST"]["count"], 20);
  EXPECT_EQ(shown["totals"]["contributions"], 40);
}

TEST_F(DaemonJoin, without_multicast_the_sum_arrives_as_one_copy_per_host) {
  lab_.Call("w1", "job.create", {{"name", "demo"}, {"world_size", 2}, {"multicast", "off"}, {"slots", 32}, {"classes", 1}});
  auto ranks = JoinTwo("demo");
  ASSERT_TRUE(ranks[0].ok) << ranks[0].error.ToString();
  EXPECT_EQ(ranks[0].reply.result["multicast"], false);
  EXPECT_EQ(ranks[0].reply.result["trees"][0]["pools"], Json::parse(R"([{"class":0,"stream":0,"log2_slots":5,"cell_base":0},
                            {"class":0,"stream":1,"log2_slots":5,"cell_base":64}])"));
  for (uint64_t seq = 0; seq < 20; ++seq) ASSERT_NO_FATAL_FAILURE(ExpectSum(ranks, seq));
  EXPECT_EQ(lab_.Call("w2", "job.show", {{"name", "demo"}})["fan"]["kind"], "unicast");
}

TEST_F(DaemonJoin, inbox_can_be_read_but_not_written_by_ranks) {
  auto ranks = JoinTwo("demo");
  ASSERT_TRUE(ranks[0].ok) << ranks[0].error.ToString();
  EXPECT_NE(ranks[0].MapInbox(), nullptr);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ranks[0].reply.fds[0].get(), 0), MAP_FAILED);
  EXPECT_NE(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ranks[0].reply.fds[1].get(), 0), MAP_FAILED) << "wake map";
}

TEST_F(DaemonJoin, several_ranks_of_one_host_share_its_inbox) {
  auto ranks = lab_.Join("demo", {{"w1", 0, 3}, {"w1", 1, 3}, {"w2", 2, 3}});
  for (const Joined& rank : ranks) ASSERT_TRUE(rank.ok) << rank.error.ToString();
  EXPECT_EQ(ranks[0].reply.result["local_index"], 0);
  EXPECT_EQ(ranks[1].reply.result["local_index"], 1);
  EXPECT_EQ(ranks[2].reply.result["local_index"], 0);
  for (size_t i = 0; i < 3; ++i) lab_.Contribute(i == 2 ? "w2" : "w1", ranks[i], 0, 1u << i);
  for (Joined& rank : ranks) {
    const volatile mlnet_cell* cell = rank.MapInbox();
    ASSERT_TRUE(WaitUntil([&] { return cell->published != 0; }));
    EXPECT_EQ(cell->w[0], 7u);
  }
}

TEST_F(DaemonJoin, deadline_names_the_missing_ranks_on_all_that_wait) {
  auto patient = std::async(std::launch::async, [&] { return lab_.Join("demo", {{"w2", 2, 4, 30'000}}); });
  // Else it would be one of those that are missing.
  ASSERT_TRUE(WaitUntil([&] { return lab_.Call("w1", "job.list")["jobs"].dump().find("\"joined\":1") != std::string::npos; }));
  auto ranks = lab_.Join("demo", {{"w1", 0, 4, 300}});
  ranks.push_back(std::move(patient.get()[0]));
  for (const Joined& rank : ranks) {
    EXPECT_EQ(rank.error.code, ErrorCode::kTimeout);
    EXPECT_THAT(rank.error.message, HasSubstr("waiting for ranks 1, 3 of job 'demo'"));
  }
  EXPECT_LT(ranks[1].took_ms, 20'000u) << "not its own deadline";
}

TEST_F(DaemonJoin, other_world_size_is_told_to_every_rank_at_once) {
  auto ranks = lab_.Join("demo", {{"w1", 0, 3, 30'000}, {"w2", 1, 4, 30'000}});
  for (const Joined& rank : ranks) {
    EXPECT_EQ(rank.error.code, ErrorCode::kMismatch);
    EXPECT_THAT(rank.error.message, HasSubstr("world_size"));
    EXPECT_LT(rank.took_ms, 20'000u) << "not its deadline";
  }
}

TEST_F(DaemonJoin, bad_or_taken_rank_is_refused_at_once) {
  auto ranks = JoinTwo("demo");
  ASSERT_TRUE(ranks[0].ok && ranks[1].ok);
  EXPECT_EQ(lab_.Join("other", {{"w1", 2, 2}})[0].error.code, ErrorCode::kInvalidArgument);
  const Error taken = lab_.Join("demo", {{"w2", 0, 2}})[0].error;
  EXPECT_EQ(taken.code, ErrorCode::kConflict);
  EXPECT_THAT(taken.message, HasSubstr("rank 0 is taken"));
  EXPECT_EQ(lab_.Call("a1", "job.show", {{"name", "demo"}})["state"], "ready") << "the running job is not disturbed";
}

TEST_F(DaemonJoin, aggregator_that_is_not_attached_is_named_to_all_ranks) {
  lab_.Call("a1", "iface.detach", {{"name", "eth0"}});
  // By default the hosts of the ranks would do it.
  lab_.Call("w1", "job.create", {{"name", "demo"}, {"world_size", 2}, {"shape", "star"}});
  auto ranks = JoinTwo("demo");
  for (const Joined& rank : ranks) {
    EXPECT_EQ(rank.error.code, ErrorCode::kUnavailable);
    EXPECT_THAT(rank.error.message, HasSubstr("a1: no interface with aggregator = true"));
    EXPECT_THAT(rank.error.hint, HasSubstr("mlnetctl iface attach"));
  }
  lab_.Call("a1", "iface.attach", {{"name", "eth0"}, {"aggregator", true}});
  EXPECT_TRUE(JoinTwo("demo")[0].ok) << "the same name works as soon as the reason is gone";
}

TEST_F(DaemonJoin, host_without_attached_interface_refuses_its_ranks) {
  lab_.Call("w1", "iface.detach", {{"name", "eth0"}});
  const Error error = lab_.Join("demo", {{"w1", 0}})[0].error;
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("host w1 has no attached interface"));
}

TEST_F(DaemonJoin, small_mtu_is_refused_by_name) {
  ASSERT_EQ(Shell("ip -n " + lab_.Netns("w2") + " link set eth0 mtu 219").exit_code, 0);
  ASSERT_TRUE(WaitUntil([&] {
    auto ranks = JoinTwo("demo");
    // Without leaving, one of the next two might be refused for the other's sake, which is still connected, and its partner wait for it.
    if (ranks[0].ok && ranks[1].ok) lab_.Leave(ranks);
    return !ranks.empty() && ranks[0].error.code == ErrorCode::kUnsupported &&
           ranks[0].error.message.find("MTU 219 of eth0 on host w2") != std::string::npos;
  })) << "seen when the daemon next looks at its interfaces";
}

TEST_F(DaemonJoin, process_that_is_killed_is_named_to_the_others_within_a_second) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto client = rpc::Client::Connect(lab_.Socket("w2"));
    auto joined = client->CallWithFds("join", {{"job", "demo"}, {"rank", 1}, {"world_size", 2}}, std::chrono::seconds(10));
    if (::write(ready[1], joined ? "y" : "n", 1) != 1) ::_exit(1);
    if (::fork() == 0) ::alarm(5);  // a child that holds the connection, as data loaders do
    for (;;) ::pause();
  }
  auto ranks = lab_.Join("demo", {{"w1", 0}});
  ASSERT_TRUE(ranks[0].ok) << ranks[0].error.ToString();
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  const auto begin = std::chrono::steady_clock::now();
  ::kill(pid, SIGKILL);
  const Json push = ranks[0].WaitPush("job_failed");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_EQ(push["code"], "E_RANK_LOST");
  EXPECT_THAT(push["message"].get<std::string>(), HasSubstr("rank 1 (host w2, pid " + std::to_string(pid) + ")"));
  EXPECT_EQ(push["ranks"], Json::array({1}));
  ::waitpid(pid, nullptr, 0);
}

TEST_F(DaemonJoin, different_collectives_are_shown_side_by_side_on_all_ranks) {
  auto ranks = JoinTwo("demo");
  ASSERT_TRUE(ranks[0].ok && ranks[1].ok);
  lab_.Contribute("w1", ranks[0], 0, 1, /*fingerprint=*/111);
  lab_.Contribute("w2", ranks[1], 0, 1, /*fingerprint=*/222);
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_FALSE(ranks[i].WaitPush("describe").is_null());
    const std::string text = i == 0 ? "all_reduce of 10 float32" : "barrier";
    ASSERT_TRUE(ranks[i].client->Notify("describe", {{"collective", 0}, {"fingerprint", i}, {"text", text}}));
  }
  for (Joined& rank : ranks) {
    const Json push = rank.WaitPush("job_failed");
    EXPECT_EQ(push["code"], "E_MISMATCH");
    EXPECT_THAT(push["message"].get<std::string>(), HasSubstr("rank 0 all_reduce of 10 float32; rank 1 barrier"));
  }
}

TEST_F(DaemonJoin, rank_that_gives_up_tells_the_others_why) {
  auto ranks = JoinTwo("demo");
  ASSERT_TRUE(ranks[0].ok && ranks[1].ok);
  ASSERT_TRUE(ranks[0].client->Notify("abort", {{"code", "E_TIMEOUT"}, {"message", "all_reduce 3: no rank 1"}}));
  const Json push = ranks[1].WaitPush("job_failed");
  EXPECT_EQ(push["code"], "E_TIMEOUT");
  EXPECT_THAT(push["message"].get<std::string>(), HasSubstr("rank 0 gave up: all_reduce 3: no rank 1"));
}

TEST_F(DaemonJoin, retransmission_policy_changes_while_the_job_runs) {
  auto ranks = JoinTwo("demo");
  ASSERT_TRUE(ranks[0].ok && ranks[1].ok);
  lab_.Call("a1", "job.set", {{"name", "demo"}, {"rto_min_us", 77}, {"rto_max_us", 99}});
  for (Joined& rank : ranks) {
    const Json push = rank.WaitPush("policy");
    EXPECT_EQ(push["rto_min_us"], 77);
    EXPECT_EQ(push["rto_max_us"], 99);
  }
  EXPECT_EQ(lab_.CallError("a1", "job.set", {{"name", "demo"}, {"rto_min_us", 100}}).code, ErrorCode::kInvalidArgument);
}

TEST_F(DaemonJoin, reports_of_ranks_are_summed_and_outlive_them) {
  auto ranks = JoinTwo("demo");
  ASSERT_TRUE(ranks[0].ok && ranks[1].ok);
  for (int i = 0; i < 2; ++i) {
    const Json report = {{"packets_sent", 10}, {"retransmits", 1 + i}, {"summed_in_kernel", 10}, {"summed_in_user_space", 0}};
    ASSERT_TRUE(ranks[static_cast<size_t>(i)].client->Notify("report", report));
  }
  lab_.Leave(ranks);
  Json shown;
  ASSERT_TRUE(WaitUntil([&] {
    shown = lab_.Call("a1", "job.show", {{"name", "demo"}});
    return shown["state"] == "closed";
  }));
  EXPECT_EQ(shown["totals"]["retransmits"], 3);
  EXPECT_EQ(shown["totals"]["summed_in_kernel"], 20);
  EXPECT_EQ(shown["totals"]["summed_in_user_space"], 0);
  EXPECT_EQ(shown["members"][1]["stats"]["retransmits"], 2);
  EXPECT_EQ(lab_.Call("a1", "stats")["retransmits"], 3);
}

}  // namespace
}  // namespace mlnet::test
