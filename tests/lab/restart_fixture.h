// SPDX-License-Identifier: Apache-2.0
// Ranks in processes of their own that sum in a loop, each sum checked against what it must be, while the daemons of
// their hosts come and go.
#pragma once

#include <atomic>
#include <csignal>
#include <string>
#include <vector>

#include "lab/daemon_fixture.h"

namespace mlnet::test {

class RestartLab : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Rank r on hosts[r], of job `job`; returns when all have sums.
  void StartRanks(const std::vector<std::string>& hosts, const std::string& job = "demo");
  /// All ranks end after the same sum, and leave; none may have met an error.
  void StopRanks();

  uint64_t NumSums(size_t rank) const { return states_[rank].sums; }
  pid_t Pid(size_t rank) const { return pids_.at(rank); }
  /// What the rank ended with; waits for it.
  std::string ErrorOf(size_t rank) const;
  std::string Who(size_t rank, const std::string& host) const;
  /// The longest that a sum of a rank took since this was last asked, in ms.
  double LongestMs();
  /// Ends one of the ranks' processes without a word.
  void Kill(size_t rank);
  /// Sums go on: so many more on every rank.
  void ExpectProgress(uint64_t num_sums);

  /// Ends a host's daemon by `signal`, sees that sums go on without it, starts it again, and waits until its ranks are back.
  void Restart(const std::string& host, int signal);
  void ExpectBack(const std::string& host);

  DaemonLab lab_{{"w1", "w2", "a1"}};
  std::string more_config_;  // of daemons that are started

 private:
  struct State {
    std::atomic<uint64_t> sums, longest_ns;
    std::atomic<bool> has_ended;
    char error[1024];
  };
  struct Shared {
    std::atomic<bool> stops;
    State ranks[8];
  };
  void Rank(int rank, int world_size, const std::string& job, const std::string& socket);

  Shared* shared_ = nullptr;
  State* states_ = nullptr;
  std::vector<pid_t> pids_;
  std::vector<std::string> hosts_;
};

}  // namespace mlnet::test
