// SPDX-License-Identifier: Apache-2.0
#include "lab/restart_fixture.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>

#include "mlnet/communicator.h"

namespace mlnet::test {
namespace {

using std::chrono::steady_clock;

constexpr size_t kCount = 5'000;

int32_t Value(int rank, uint64_t call, size_t i) { return static_cast<int32_t>((rank + 1) * 1000 + static_cast<int>((call * 31 + i) % 997)); }

// In whole numbers, apart from any code of mlnet's. Element 0 tells whether to stop.
std::string WhyWrong(const std::vector<int32_t>& ints, const std::vector<float>& floats, int world_size, uint64_t call) {
  for (size_t i = 1; i < kCount; ++i) {
    int64_t sum = 0;
    for (int r = 0; r < world_size; ++r) sum += Value(r, call, i);
    if (ints[i] != sum) return "sum " + std::to_string(call) + ": element " + std::to_string(i) + " is " + std::to_string(ints[i]) + ", not " + std::to_string(sum);
    // |error| <= n M 2^(ceil(log2 n) + 1 - 32), and one rounding to float32.
    const double bound = world_size * 1000.0 * (world_size + 1) * std::exp2(4 - 32) + std::abs(sum / 8.0) * std::exp2(-24);
    if (std::abs(floats[i] - sum / 8.0) > bound) return "sum " + std::to_string(call) + ": element " + std::to_string(i) + " is " + std::to_string(floats[i]);
  }
  return "";
}

}  // namespace

void RestartLab::SetUp() {
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  shared_ = new (memory) Shared();
  states_ = shared_->ranks;
}

void RestartLab::TearDown() {
  for (size_t r = 0; r < pids_.size(); ++r) Kill(r);
  ::munmap(shared_, sizeof(Shared));
}

void RestartLab::StartRanks(const std::vector<std::string>& hosts, const std::string& job) {
  hosts_ = hosts;
  shared_->stops = false;
  for (size_t r = 0; r < hosts.size(); ++r) {
    states_[r].sums = states_[r].longest_ns = 0;
    states_[r].has_ended = false;
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      lab_.In(hosts[r], [&] { Rank(static_cast<int>(r), static_cast<int>(hosts.size()), job, lab_.Socket(hosts[r])); });
      states_[r].has_ended = true;
      ::_exit(0);
    }
    pids_.push_back(pid);
  }
  for (size_t r = 0; r < hosts.size(); ++r) {
    ASSERT_TRUE(WaitUntil([&] { return states_[r].sums > 10 || states_[r].has_ended; }, std::chrono::seconds(30))) << r;
    ASSERT_FALSE(states_[r].has_ended) << states_[r].error;
  }
}

void RestartLab::Rank(int rank, int world_size, const std::string& job, const std::string& socket) {
  State& state = states_[rank];
  const auto end = [&](const std::string& why) { std::strncpy(state.error, why.c_str(), sizeof(state.error) - 1); };
  JoinOptions options;
  options.job = job;
  options.rank = rank;
  options.world_size = world_size;
  options.socket = socket;
  options.timeout = std::chrono::seconds(60);  // of each call, too: a daemon that starts meanwhile takes seconds on a busy machine
  auto comm = Communicator::Join(options);
  if (!comm) return end(comm.error().ToString());
  std::vector<int32_t> ints(kCount), int_sums(kCount);
  std::vector<float> floats(kCount), float_sums(kCount);
  for (uint64_t call = 0;; ++call) {
    const auto begin = steady_clock::now();
    for (size_t i = 0; i < kCount; ++i) floats[i] = static_cast<float>(ints[i] = Value(rank, call, i)) / 8;
    ints[0] = shared_->stops ? 1 : 0;
    const auto first = (*comm)->AllReduce(ints.data(), int_sums.data(), kCount, DataType::kInt32);
    const auto second = (*comm)->AllReduce(floats.data(), float_sums.data(), kCount, DataType::kFloat32);
    for (const auto& work : {first, second}) {
      if (const auto done = work->Wait(); !done) return end(done.error().ToString());
    }
    if (const std::string why = WhyWrong(int_sums, float_sums, world_size, call); !why.empty()) return end(why);
    const auto took_ns = static_cast<uint64_t>((steady_clock::now() - begin).count());
    state.longest_ns = std::max<uint64_t>(state.longest_ns, took_ns);
    ++state.sums;
    if (int_sums[0] != 0) return;
  }
}

void RestartLab::StopRanks() {
  shared_->stops = true;
  for (size_t r = 0; r < pids_.size(); ++r) {
    EXPECT_TRUE(WaitUntil([&] { return states_[r].has_ended.load(); })) << r;
    EXPECT_STREQ(states_[r].error, "") << "rank " << r;
    ::waitpid(pids_[r], nullptr, 0);
  }
  pids_.clear();
}

std::string RestartLab::ErrorOf(size_t rank) const {
  EXPECT_TRUE(WaitUntil([&] { return states_[rank].has_ended.load(); }, std::chrono::seconds(20))) << rank;
  return states_[rank].error;
}

std::string RestartLab::Who(size_t rank, const std::string& host) const {
  return "rank " + std::to_string(rank) + " (host " + host + ", pid " + std::to_string(pids_[rank]) + ")";
}

double RestartLab::LongestMs() {
  uint64_t longest_ns = 0;
  for (size_t r = 0; r < pids_.size(); ++r) longest_ns = std::max<uint64_t>(longest_ns, states_[r].longest_ns.exchange(0));
  return static_cast<double>(longest_ns) / 1e6;
}

void RestartLab::Kill(size_t rank) {
  ::kill(pids_[rank], SIGKILL);
  ::waitpid(pids_[rank], nullptr, 0);
}

void RestartLab::ExpectProgress(uint64_t num_sums) {
  for (size_t r = 0; r < pids_.size(); ++r) {
    const uint64_t before = states_[r].sums;
    ASSERT_TRUE(WaitUntil([&] { return states_[r].sums >= before + num_sums || states_[r].has_ended; })) << "rank " << r;
    ASSERT_FALSE(states_[r].has_ended) << "rank " << r << ": " << states_[r].error;
  }
}

void RestartLab::ExpectBack(const std::string& host) {
  for (size_t r = 0; r < hosts_.size(); ++r) {
    if (hosts_[r] != host) continue;
    const std::string line = "rank " + std::to_string(r) + ", pid " + std::to_string(pids_[r]) + ", is back";
    EXPECT_TRUE(WaitUntil([&] { return lab_.Log(host).find(line) != std::string::npos; })) << line;
  }
}

void RestartLab::Restart(const std::string& host, int signal) {
  LongestMs();
  lab_.Signal(host, signal);
  ASSERT_NO_FATAL_FAILURE(ExpectProgress(20)) << "without the daemon of " << host;
  const double away_ms = LongestMs();
  const auto begin = steady_clock::now();
  ASSERT_NO_FATAL_FAILURE(lab_.Start(host, more_config_));
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - begin);
  ASSERT_NO_FATAL_FAILURE(ExpectBack(host));
  ASSERT_NO_FATAL_FAILURE(ExpectProgress(20)) << "with the new daemon of " << host;
  std::printf("%s by signal %d: longest sum %.1f ms without a daemon, %.1f ms while it started (%lld ms)\n", host.c_str(), signal, away_ms,
              LongestMs(), static_cast<long long>(took.count()));
}

}  // namespace mlnet::test
