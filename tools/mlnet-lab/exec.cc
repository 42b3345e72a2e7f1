// SPDX-License-Identifier: Apache-2.0
// mlnet-lab exec HOST -- CMD...: this process becomes the command, in the host's network namespace, so
// signals and exit code need no passing on. MLNET_SOCKET names the host's daemon.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/errno_error.h"
#include "commands.h"
#include "netns.h"

namespace mlnet::lab {
namespace {

struct ExecOptions {
  std::string host;
  std::vector<std::string> command;
};

Result<void> Exec(const Globals& globals, const ExecOptions& options) {
  if (auto r = RequireRoot(); !r) return r;
  const Paths paths(globals.name);
  const auto state = LoadReadyState(paths);
  if (!state) return tl::make_unexpected(state.error());
  const bool is_switch = options.host == Paths::kSwitch;
  if (!is_switch) {
    if (auto host = FindHost(*state, options.host); !host) return tl::make_unexpected(host.error());
    setenv("MLNET_SOCKET", paths.Socket(options.host).c_str(), 1);
  }
  if (auto r = EnterNetns(paths.NetnsFile(options.host)); !r) return r;
  std::vector<char*> argv;
  for (const auto& arg : options.command) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  return tl::make_unexpected(ErrnoError("run " + options.command[0], errno));
}

}  // namespace

void AddExecCommand(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<ExecOptions>();
  auto* command =
      app.add_subcommand("exec", "Run a command on a host: mlnet-lab exec w1 -- ping -c1 10.77.0.2");
  command->add_option("host", options->host, "Host, or 'switch'")->required();
  command->add_option("command", options->command, "Command and its arguments, after --")->required();
  SetAction(command, globals, [&globals, options] { return Exec(globals, *options); });
}

}  // namespace mlnet::lab
