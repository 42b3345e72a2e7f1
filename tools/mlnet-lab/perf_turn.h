// SPDX-License-Identifier: Apache-2.0
// One turn of one backend: its ranks in the hosts' namespaces, from start to results.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "mlnet-perf/spec.h"
#include "state.h"

namespace mlnet::lab {

struct Turn {
  std::string backend;      // the rank program is mlnet-perf-BACKEND
  perf::Spec spec;          // its dir exists and is empty
  std::vector<Host> hosts;  // the workers; rank r runs on host r / ranks_per_host
  int timeout_s = 600;      // of the whole turn
  Json declared{};          // of mlnet's job, as job.create has them; empty: the job is as the daemon is configured
};

/// The program of a backend: beside this one, or where it is installed.
Result<std::string> FindRankProgram(const std::string& backend);

/// What every rank found, in rank order. The error of a failed turn carries what the ranks said on stderr.
/// `stop` ends the turn early. `at_checkpoint` is called before and after the timed iterations of every row.
Result<std::vector<std::vector<perf::RankRow>>> RunTurn(const Paths& paths, const Turn& turn,
                                                        const std::atomic<bool>& stop,
                                                        const std::function<void()>& at_checkpoint);

}  // namespace mlnet::lab
