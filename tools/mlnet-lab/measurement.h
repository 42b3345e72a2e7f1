// SPDX-License-Identifier: Apache-2.0
// What the measurements of mlnet have in common: a lab that is up with its daemons, a folder that makes this the only one in
// it, and an end in order when they are interrupted.
#pragma once

#include <signal.h>

#include <atomic>
#include <string>
#include <vector>

#include "commands.h"
#include "state.h"
#include "work_folder.h"

namespace mlnet::lab {

struct Measurement {
  Paths paths;
  State state;
  std::vector<Host> workers;
  WorkFolder folder;
};

/// `name`: of the kind of measurement, for the folder.
Result<Measurement> BeginMeasurement(const Globals& globals, const std::string& name);

/// While it lives, SIGINT and SIGTERM set the flag, which ends the turns that are given it. One at a time.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  std::atomic<bool>& flag();

 private:
  struct sigaction old_int_ {
  }, old_term_{};
};

}  // namespace mlnet::lab
