// SPDX-License-Identifier: Apache-2.0
// Ranks that are stopped and hosts that are cut off, with real daemons and ranks in processes of their own: the others hear
// who it is, long before any timeout of a collective.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>

#include "control/liveness.h"
#include "lab/daemon_fixture.h"
#include "mlnet/communicator.h"

namespace mlnet::test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kCount = 10'000;

class DaemonSilence : public ::testing::Test {
 protected:
  explicit DaemonSilence(std::vector<std::string> hosts = {"w1", "w2", "a1"}) : lab_(std::move(hosts)) {}
  void TearDown() override {
    for (const pid_t pid : ranks_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  /// Rank r on hosts[r], in a process of its own: sums in turn with all others until that fails, then writes down why.
  void Start(const std::vector<std::string>& hosts) {
    lab_.StartAll();
    StartRanks(hosts);
  }
  void StartRanks(const std::vector<std::string>& hosts) {
    for (size_t r = 0; r < hosts.size(); ++r) {
      const pid_t pid = ::fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) {
        lab_.In(hosts[r], [&] { Rank(static_cast<int>(r), static_cast<int>(hosts.size()), lab_.Socket(hosts[r])); });
        ::_exit(0);
      }
      ranks_.push_back(pid);
    }
    for (size_t r = 0; r < hosts.size(); ++r) ASSERT_TRUE(WaitUntil([&] { return !Read(r, "sums").empty(); }, std::chrono::seconds(30))) << r;
  }
  void Rank(int rank, int world_size, const std::string& socket) {
    JoinOptions options;
    options.job = "demo";
    options.rank = rank;
    options.world_size = world_size;
    options.socket = socket;
    options.requires_kernel = requires_kernel_;
    auto comm = Communicator::Join(options);
    if (!comm) return Write(rank, "error", comm.error().ToString());
    std::vector<int32_t> data(kCount, rank + 1), sum(kCount);
    for (int call = 0;; ++call) {
      const auto done = (*comm)->AllReduce(data.data(), sum.data(), kCount, DataType::kInt32)->Wait();
      if (!done) return Write(rank, "error", done.error().ToString());
      const bool is_right = std::count(sum.begin(), sum.end(), world_size * (world_size + 1) / 2) == static_cast<long>(kCount);
      if (!is_right) return Write(rank, "error", "wrong sum");
      if (call == 10) Write(rank, "sums", "right");
      if (call == 10 && pauses_) WaitUntil([&] { return !Read(0, "go").empty(); }, std::chrono::seconds(60));
      if (call == 20) Write(rank, "later", "right");
    }
  }
  std::string File(size_t rank, const std::string& what) { return lab_.Path("rank" + std::to_string(rank) + "." + what); }
  void Write(int rank, const std::string& what, const std::string& text) {
    const std::string file = File(static_cast<size_t>(rank), what);
    std::ofstream(file + ".tmp") << text;
    ::rename((file + ".tmp").c_str(), file.c_str());
  }
  std::string Read(size_t rank, const std::string& what) {
    std::ifstream in(File(rank, what));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// What this rank's call ended with; prints how long that took.
  std::string ErrorOf(size_t rank) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(WaitUntil([&] { return !Read(rank, "error").empty(); }, std::chrono::seconds(20))) << rank;
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    std::printf("rank %zu: after %lld ms: %s\n", rank, static_cast<long long>(took.count()), Read(rank, "error").c_str());
    return Read(rank, "error");
  }
  std::string Who(size_t rank, const std::string& host) const {
    return "rank " + std::to_string(rank) + " (host " + host + ", pid " + std::to_string(ranks_[rank]) + ")";
  }
  void Cut(const std::string& host) { Shell("ip -n " + lab_.Netns("sw") + " link set p-" + host + " down"); }

  DaemonLab lab_;
  std::vector<pid_t> ranks_;
  bool requires_kernel_ = false;
  bool pauses_ = false;  // after some sums, until they are told to go on
};

class DaemonSilenceInRacks : public DaemonSilence {
 protected:
  DaemonSilenceInRacks() : DaemonSilence({"w1", "w2", "w3", "w4"}) {}
};

TEST_F(DaemonSilence, a_stopped_rank_is_named_on_the_others) {
  ASSERT_NO_FATAL_FAILURE(Start({"w1", "w2"}));
  ::kill(ranks_[1], SIGSTOP);
  const auto names_it = ::testing::AnyOf(HasSubstr("has not heard of " + Who(1, "w2") + " for"), HasSubstr(Who(1, "w2") + " has been stopped"));
  EXPECT_THAT(ErrorOf(0), names_it);
  // It hears the same when it goes on.
  ::kill(ranks_[1], SIGCONT);
  EXPECT_THAT(ErrorOf(1), names_it);
}

TEST_F(DaemonSilence, one_of_several_ranks_of_a_host_is_named_by_that_host) {
  ASSERT_NO_FATAL_FAILURE(Start({"w1", "w1", "w2"}));
  ::kill(ranks_[1], SIGSTOP);
  const auto names_it = ::testing::AnyOf(HasSubstr("host w1 has not heard of " + Who(1, "w1") + " for"), HasSubstr(Who(1, "w1") + " has been stopped"));
  for (const size_t rank : {2, 0}) EXPECT_THAT(ErrorOf(rank), names_it);
}

TEST_F(DaemonSilence, a_host_that_is_cut_off_is_named_and_learns_that_it_is) {
  ASSERT_NO_FATAL_FAILURE(Start({"w1", "w2"}));
  Cut("w2");
  EXPECT_THAT(ErrorOf(0), ::testing::AnyOf(HasSubstr("has not heard of " + Who(1, "w2")), HasSubstr("has not answered host w2")));
  EXPECT_THAT(ErrorOf(1), ::testing::AnyOf(HasSubstr("has not heard of " + Who(1, "w2")), HasSubstr("has not answered host w2")));
}

TEST_F(DaemonSilence, an_aggregator_that_is_cut_off_is_named_where_nothing_may_take_its_place) {
  requires_kernel_ = true;
  ASSERT_NO_FATAL_FAILURE(Start({"w1", "w2"}));
  Cut("a1");
  // Each side holds the other for lost; whoever says so first is heard.
  for (const size_t rank : {0, 1}) EXPECT_THAT(ErrorOf(rank), ::testing::AnyOf(HasSubstr("host a1, which sums at"), HasSubstr("host a1 has not heard of")));
}

// As while a model is evaluated: longer than a first contact and a loss may take. Hosts whose sums pass a node in their rack hear nothing
// of the root but what comes by that node.
TEST_F(DaemonSilenceInRacks, a_job_that_pauses_loses_nobody) {
  for (const char* host : {"w1", "w2", "w3", "w4"}) {
    ASSERT_NO_FATAL_FAILURE(lab_.Start(host, std::string("[site]\nrack = \"") + (host[1] < '3' ? "r1" : "r2") + "\"\n"));
  }
  lab_.Call("w1", "job.create", {{"name", "demo"}, {"world_size", 4}, {"shape", "rack"}});
  pauses_ = true;
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2", "w3", "w4"}));
  const auto is_over = [&] { return std::any_of(ranks_.begin(), ranks_.end(), [&, r = size_t{0}](pid_t) mutable { return !Read(r++, "error").empty(); }); };
  EXPECT_FALSE(WaitUntil(is_over, std::chrono::milliseconds(control::kFirstContactMs + 3'000)));
  Write(0, "go", "on");
  for (size_t r = 0; r < 4; ++r) EXPECT_TRUE(WaitUntil([&] { return !Read(r, "later").empty() || !Read(r, "error").empty(); })) << r;
  for (size_t r = 0; r < 4; ++r) EXPECT_EQ(Read(r, "error"), "") << r;
}

}  // namespace
}  // namespace mlnet::test
