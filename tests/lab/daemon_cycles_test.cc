// SPDX-License-Identifier: Apache-2.0
// Jobs that come and go, many times: descriptors, maps, threads and memory of the daemons and of the process stay what they
// were. Short form; MLNET_LONG=1 (tools/check --full) does 1000 rounds.
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "lab/daemon_fixture.h"
#include "mlnet/communicator.h"

namespace mlnet::test {
namespace {

constexpr size_t kCount = 2'000;
constexpr int kWarmUp = 5;
constexpr long kGrowthMaxKb = 4'096;  // of pages that the allocator keeps; a leak of a few KB a round is more

struct Resources {
  long fds = 0, threads = 0, memory_kb = 0;
};

Resources Of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  Resources r;
  const std::filesystem::directory_iterator fds(folder + "/fd");
  r.fds = std::distance(begin(fds), end(fds));
  std::ifstream status(folder + "/status");
  std::string key;
  while (status >> key) {
    if (key == "Threads:") status >> r.threads;
    if (key == "VmRSS:") status >> r.memory_kb;
  }
  return r;
}

int NumRounds() {
  const char* is_long = std::getenv("MLNET_LONG");
  return is_long != nullptr && std::string(is_long) == "1" ? 1000 : 60;
}

class DaemonCycles : public ::testing::Test {
 protected:
  void Rank(int rank, int round) {
    JoinOptions options;
    options.job = "cycle";
    options.rank = rank;
    options.world_size = 2;
    options.socket = lab_.Socket(rank == 0 ? "w1" : "w2");
    auto comm = Communicator::Join(options);
    ASSERT_TRUE(comm) << comm.error().ToString();
    std::vector<int32_t> data(kCount, rank + round), sum(kCount);
    const auto done = (*comm)->AllReduce(data.data(), sum.data(), kCount, DataType::kInt32)->Wait();
    ASSERT_TRUE(done) << done.error().ToString();
    ASSERT_EQ(std::count(sum.begin(), sum.end(), 2 * round + 1), static_cast<long>(kCount));
  }
  void Round(int round) {
    lab_.Call("a1", "job.create", {{"name", "cycle"}, {"world_size", 2}});
    std::thread other([&] { lab_.In("w2", [&] { Rank(1, round); }); });
    lab_.In("w1", [&] { Rank(0, round); });
    other.join();
    lab_.Call("a1", "job.delete", {{"name", "cycle"}});
    for (const char* host : {"w1", "w2", "a1"}) {
      ASSERT_TRUE(WaitUntil([&] { return lab_.NumInnerMaps(host) == 0 && lab_.Call(host, "job.list")["jobs"].empty(); })) << host;
    }
  }
  std::map<std::string, Resources> Measure() {
    ::malloc_trim(0);
    std::map<std::string, Resources> all = {{"this process", Of(::getpid())}};
    for (const char* host : {"w1", "w2", "a1"}) all[host] = Of(lab_.Pid(host));
    return all;
  }

  DaemonLab lab_{{"w1", "w2", "a1"}};
};

TEST_F(DaemonCycles, many_jobs_leave_nothing_behind) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  for (int round = 0; round < kWarmUp; ++round) ASSERT_NO_FATAL_FAILURE(Round(round));
  const auto before = Measure();
  for (int round = 0; round < NumRounds(); ++round) ASSERT_NO_FATAL_FAILURE(Round(round));
  // Connections that were closed just now are gone after a turn of the loop. The first measurement may have counted one of those, too:
  // so less than before is right, and a leak of one descriptor in so many rounds is far more than that one.
  const auto is_no_more = [&](const auto& of) { return of.second.fds <= before.at(of.first).fds && of.second.threads <= before.at(of.first).threads; };
  // The one that was so is what counts: a look at the interfaces opens sockets again, for a moment.
  std::map<std::string, Resources> after;
  EXPECT_TRUE(WaitUntil([&] {
    after = Measure();
    return std::all_of(after.begin(), after.end(), is_no_more);
  }));
  for (const auto& [who, now] : after) {
    std::printf("%s: %ld descriptors, %ld threads, %ld KB before, %ld KB after %d rounds\n", who.c_str(), now.fds, now.threads,
                before.at(who).memory_kb, now.memory_kb, NumRounds());
    EXPECT_LE(now.fds, before.at(who).fds) << who;
    EXPECT_LE(now.threads, before.at(who).threads) << who;
    EXPECT_LT(now.memory_kb, before.at(who).memory_kb + kGrowthMaxKb) << who;
  }
}

}  // namespace
}  // namespace mlnet::test
