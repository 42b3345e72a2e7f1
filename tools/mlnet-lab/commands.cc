// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

#include <fmt/format.h>
#include <unistd.h>

namespace mlnet::lab {

int ExitCodeOf(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return 2;
    case ErrorCode::kUnavailable:
      return 3;
    case ErrorCode::kPermission:
      return 4;
    case ErrorCode::kConflict:
      return 5;
    case ErrorCode::kUnsupported:
      return 6;
    default:
      return 1;
  }
}

void SetAction(CLI::App* command, Globals& globals, std::function<Result<void>()> body) {
  command->callback([&globals, body = std::move(body)] {
    const auto result = body();
    if (result) return;
    const Error& error = result.error();
    globals.exit_code = ExitCodeOf(error);
    fmt::print(stderr, "mlnet-lab: {}\n", error.message);
    if (!error.hint.empty()) fmt::print(stderr, "  hint: {}\n", error.hint);
    if (globals.json) {
      const Json j = {{"schema", "mlnet-lab.error/1"},
                      {"code", ErrorCodeName(error.code)},
                      {"message", error.message},
                      {"hint", error.hint}};
      fmt::print("{}\n", j.dump());
    }
  });
}

Result<void> RequireRoot() {
  if (geteuid() == 0) return {};
  return Err(ErrorCode::kPermission, "mlnet-lab makes network namespaces and needs root", "run it with sudo");
}

Result<const Host*> FindHost(const State& state, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& host : state.topology.hosts) {
    if (host.name == name) return &host;
    names.push_back(host.name);
  }
  return Err(ErrorCode::kUnavailable, fmt::format("lab '{}' has no host '{}'", state.topology.name, name),
             fmt::format("its hosts are {}", fmt::join(names, ", ")));
}

}  // namespace mlnet::lab
