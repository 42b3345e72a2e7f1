// SPDX-License-Identifier: Apache-2.0
// Ranks in processes of their own that sum, and go on with those who are left whenever their job fails.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lab/rank_processes.h"

namespace mlnet::test {

struct ShrinkJob {
  std::string name;
  std::vector<std::string> hosts;  // of the ranks
  size_t last_size = 0;    // they sum until only so many are left, and then some more
  int wait_ms = 10'000;    // for ranks that do not go on
  std::set<int> silent{};  // ranks that do not go on before they are told to
};

class ShrinkRanks final : public RankProcesses {
 public:
  using RankProcesses::RankProcesses;

  /// An outcome "done 0 1 3" names the ranks, as they were numbered first, that the last sums were of; another is what ended it.
  void Start(const ShrinkJob& job);
  /// Whether a rank has written `what`: "error" of its first call that failed, "asking" just before it asks to go on.
  bool WaitFor(size_t rank, const std::string& what) const;
  void TellToAsk(int rank) { Write(rank, "go", "on"); }

 private:
  void Rank(int rank) const override;

  ShrinkJob job_;
};

}  // namespace mlnet::test
