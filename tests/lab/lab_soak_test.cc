// SPDX-License-Identifier: Apache-2.0
// Real daemons and ranks over links that lose, double, reorder and corrupt one frame in a hundred, each way: every call is checked,
// until so many packets have met the faults. A packet crosses two links. Where both flip a bit, the check word does not see two flips that
// cancel in a sum, and the tag of a job with `mac` does: so in one without, only the links of the ranks' hosts corrupt.
//   lab_soak                                  what tools/check runs; with --full (MLNET_LONG=1) ten million packets
//   lab_soak --packets N [--seed S]
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "lab/chaos_rank.h"
#include "lab/lab_fixture.h"

namespace mlnet::lab_test {
namespace {

struct Options {
  uint64_t packets = 100'000;
  uint64_t seed = 20261129;
};
Options g_options;

constexpr const char* kFaults[] = {"lost", "duplicated", "reordered", "corrupted"};
constexpr size_t kRanks = 4;

/// In memory that the ranks' processes map too.
struct Shared {
  std::atomic<uint32_t> should_end;
  test::ChaosReport ranks[kRanks];
};

class Soak : public testing::Test {
 protected:
  Soak() : lab_({"--workers", "4", "--rate", "unlimited", "--agg-rate", "unlimited", "--seed", std::to_string(g_options.seed), "--loss", "1", "--dup", "1",
                 "--reorder", "1", "--corrupt", "1"}) {
    shared_ = static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    job_.name = "soak";
    job_.seed = g_options.seed;
    job_.timeout_ms = 60'000;
    job_.count_max = 2'000'000;
    for (size_t rank = 0; rank < kRanks; ++rank) job_.hosts.push_back("w" + std::to_string(rank + 1));
  }
  ~Soak() override {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    ::munmap(shared_, sizeof(Shared));
  }

  void Run() {
    StartRanks();
    std::printf("soak: seed %llu, until %llu packets\n", static_cast<unsigned long long>(g_options.seed), static_cast<unsigned long long>(g_options.packets));
    for (uint64_t calls = 1; Passed()["frames"] < g_options.packets && !AreOver(1); calls += 5) {
      ASSERT_TRUE(WaitFor([&] { return shared_->ranks[0].calls >= calls || AreOver(1); }, std::chrono::minutes(5)));
    }
    shared_->should_end = 1;
    EXPECT_TRUE(WaitFor([&] { return AreOver(kRanks); }, std::chrono::minutes(2)));
    ExpectAllRight();
  }

  void StartRanks() {
    for (size_t rank = 0; rank < kRanks; ++rank) {
      const std::string& host = job_.hosts[rank];
      const std::string socket = lab_.Exec(host, {"sh", "-c", "printf %s \"$MLNET_SOCKET\""}).out;
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        RunIn(lab_.Netns(host), [&] { test::RunChaosRank(job_, static_cast<int>(rank), socket, shared_->should_end, shared_->ranks[rank]); });
      }
      pids_.push_back(pid);
    }
  }
  bool AreOver(size_t at_least) const {
    size_t over = 0;
    for (const auto& report : shared_->ranks) over += report.is_over;
    return over >= at_least;
  }

  /// Frames that came to a link, and what became of them, over all links.
  std::map<std::string, uint64_t> Passed() const {
    std::map<std::string, uint64_t> sum;
    const Json shown = lab_.Fault({"show"});
    for (const Json& host : shown["hosts"]) {
      for (const char* direction : {"tx", "rx"}) {
        sum["frames"] += host[direction]["frames"].get<uint64_t>();
        for (const char* fault : kFaults) sum[fault] += host[direction][fault].get<uint64_t>();
      }
    }
    return sum;
  }

  void ExpectAllRight() {
    uint64_t elements = 0;
    for (const auto& report : shared_->ranks) {
      EXPECT_FALSE(report.is_wrong);
      EXPECT_EQ(report.error[0], '\0') << report.error;
      elements += report.elements;
    }
    auto passed = Passed();
    EXPECT_GE(passed["frames"], g_options.packets);
    for (const char* fault : kFaults) {
      const double percent = 100.0 * static_cast<double>(passed[fault]) / static_cast<double>(passed["frames"]);
      EXPECT_GT(percent, fault == std::string("corrupted") ? 0.4 : 0.8) << fault;
      std::printf("%-12s%12llu frames, %.3f %%\n", fault, static_cast<unsigned long long>(passed[fault]), percent);
    }
    std::printf("%llu packets, %llu calls of %zu ranks, %llu elements checked\n", static_cast<unsigned long long>(passed["frames"]),
                static_cast<unsigned long long>(shared_->ranks[0].calls), kRanks, static_cast<unsigned long long>(elements));
  }

  const Lab lab_;
  test::ChaosJob job_;
  Shared* shared_;
  std::vector<pid_t> pids_;
};

TEST_F(Soak, every_sum_is_right_with_all_faults_at_one_percent) {
  lab_.Fault({"set", "a1", "--corrupt", "0"});
  Run();
}

TEST_F(Soak, so_it_is_with_tags_where_every_link_corrupts) {
  job_.mac = true;
  Run();
}

}  // namespace
}  // namespace mlnet::lab_test

int main(int argc, char** argv) {
  using mlnet::lab_test::g_options;
  testing::InitGoogleTest(&argc, argv);
  const char* is_long = std::getenv("MLNET_LONG");
  if (is_long != nullptr && is_long[0] == '1') g_options.packets = 10'000'000;
  CLI::App app("sums over bad links");
  app.add_option("--packets", g_options.packets, "frames that come to a link until the end");
  app.add_option("--seed", g_options.seed, "of the faults and the numbers");
  CLI11_PARSE(app, argc, argv);
  return RUN_ALL_TESTS();
}
