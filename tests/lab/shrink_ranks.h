// SPDX-License-Identifier: Apache-2.0
// Ranks in processes of their own that sum, and go on with those who are left whenever their job fails.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lab/daemon_fixture.h"

namespace mlnet::test {

struct ShrinkJob {
  std::string name;
  std::vector<std::string> hosts;  // of the ranks
  size_t last_size = 0;    // they sum until only so many are left, and then some more
  int wait_ms = 10'000;    // for ranks that do not go on
  std::set<int> silent{};  // ranks that do not go on before they are told to
};

class ShrinkRanks {
 public:
  explicit ShrinkRanks(DaemonLab& lab) : lab_(lab) {}
  ~ShrinkRanks() { End(); }

  void Start(const ShrinkJob& job);
  bool WaitDone(size_t rank, int calls);
  /// Whether a rank has written `what`: "error" of its first call that failed, "asking" just before it asks to go on.
  bool WaitFor(size_t rank, const std::string& what);
  std::string Read(size_t rank, const std::string& what) const;
  /// Waits for the end: "done 0 1 3" names the ranks, as they were numbered first, that the last sums were of; or what ended it.
  std::string Outcome(size_t rank);
  void TellToAsk(int rank) { Write(rank, "go", "on"); }
  void Kill(size_t rank);
  pid_t pid(size_t rank) const { return pids_[rank]; }
  void End();

 private:
  void Rank(int rank) const;
  std::string File(size_t rank, const std::string& what) const { return lab_.Path(job_.name + "." + std::to_string(rank) + "." + what); }
  void Write(int rank, const std::string& what, const std::string& text) const;

  DaemonLab& lab_;
  ShrinkJob job_;
  std::vector<pid_t> pids_;
};

}  // namespace mlnet::test
