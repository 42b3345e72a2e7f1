// SPDX-License-Identifier: Apache-2.0
// Ranks in processes of their own that make a given list of calls and write down what came out, call by call.
#pragma once

#include <string>
#include <vector>

#include "lab/rank_processes.h"

namespace mlnet::test {

struct OutageJob {
  std::string name;
  std::vector<std::string> hosts;  // of the ranks
  int calls = 0;
  size_t count_most = 0;  // elements of the largest call
  int timeout_ms = 20'000;
  int held = 0;  // so many of its last calls are not made before Release
};

class OutageRanks final : public RankProcesses {
 public:
  using RankProcesses::RankProcesses;

  void Start(const OutageJob& job);
  /// Of all ranks, waiting for them: a digest of every result, or the error that ended it.
  std::vector<std::string> Outcomes() const;
  /// The calls that were held.
  void Release();
  struct Times {
    int slowest_ms = 0;
    int median_us = 0;  // of the largest calls, in the second half
  };
  Times TimesOf(size_t rank) const;

 private:
  void Rank(int rank) const override;

  OutageJob job_;
};

}  // namespace mlnet::test
