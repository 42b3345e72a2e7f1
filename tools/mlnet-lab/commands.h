// SPDX-License-Identifier: Apache-2.0
// One function per subcommand, each in its own file; main.cc only calls them.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "mlnet/error.h"
#include "state.h"

namespace mlnet::lab {

/// Options that every subcommand takes, and the exit code that the chosen one leaves.
struct Globals {
  std::string name = "lab";
  bool json = false;
  int exit_code = 0;
};

/// Exit codes: 0 done, 1 failed, 2 wrong use, 3 no such lab or host, 4 not permitted, 5 exists or busy,
/// 6 the kernel lacks something. `exec` exits with the command's own code.
int ExitCodeOf(const Error& error);

/// Registers `body` as what `command` does; prints its error (with -j as mlnet-lab.error/1) and sets the exit
/// code.
void SetAction(CLI::App* command, Globals& globals, std::function<Result<void>()> body);

/// kPermission unless this is root.
Result<void> RequireRoot();

/// The host called `name`; kUnavailable lists those that exist.
Result<const Host*> FindHost(const State& state, const std::string& name);

/// `mlnet-lab.status/1`.
Json StatusJson(const Paths& paths, const State& state);
void PrintStatus(const Paths& paths, const State& state, bool json);

void AddUpCommand(CLI::App& app, Globals& globals);
void AddDownCommand(CLI::App& app, Globals& globals);
void AddTopologyCommand(CLI::App& app, Globals& globals);
void AddStatusCommand(CLI::App& app, Globals& globals);
void AddExecCommand(CLI::App& app, Globals& globals);
void AddXdpCommand(CLI::App& app, Globals& globals);
void AddFaultCommand(CLI::App& app, Globals& globals);
void AddPerfCommand(CLI::App& app, Globals& globals);
void AddJobsCommand(CLI::App& app, Globals& globals);
void AddLayersCommand(CLI::App& app, Globals& globals);
void AddUrgentCommand(CLI::App& app, Globals& globals);

}  // namespace mlnet::lab
