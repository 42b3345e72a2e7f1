// SPDX-License-Identifier: Apache-2.0
// Ranks in processes of their own that make a given list of calls and write down what came out, call by call.
#pragma once

#include <string>
#include <vector>

#include "lab/daemon_fixture.h"

namespace mlnet::test {

struct OutageJob {
  std::string name;
  std::vector<std::string> hosts;  // of the ranks
  int calls = 0;
  size_t count_most = 0;  // elements of the largest call
  int timeout_ms = 20'000;
};

class OutageRanks {
 public:
  explicit OutageRanks(DaemonLab& lab) : lab_(lab) {}
  ~OutageRanks() { End(); }

  void Start(const OutageJob& job);
  /// Calls that a rank has done.
  int Done(size_t rank);
  bool WaitDone(size_t rank, int calls);
  /// Of all ranks, waiting for them: a digest of every result, or the error that ended it.
  std::vector<std::string> Outcomes();
  std::string Outcome(size_t rank);
  struct Times {
    int slowest_ms = 0;
    int median_us = 0;  // of the largest calls, in the second half
  };
  Times TimesOf(size_t rank);
  pid_t pid(size_t rank) const { return pids_[rank]; }
  void End();

 private:
  void Rank(int rank) const;
  std::string File(size_t rank, const std::string& what) const { return lab_.Path(job_.name + "." + std::to_string(rank) + "." + what); }
  void Write(int rank, const std::string& what, const std::string& text) const;
  std::string Read(size_t rank, const std::string& what) const;

  DaemonLab& lab_;
  OutageJob job_;
  std::vector<pid_t> pids_;
};

}  // namespace mlnet::test
