// SPDX-License-Identifier: Apache-2.0
// mlnet-lab down: removes a lab; no error when there is none.
#include <fmt/format.h>

#include "commands.h"
#include "teardown.h"

namespace mlnet::lab {
namespace {

Result<void> Down(const Globals& globals) {
  if (auto r = CheckLabName(globals.name); !r) return r;
  if (auto r = RequireRoot(); !r) return r;
  const Paths paths(globals.name);
  std::error_code ec;
  std::filesystem::remove_all(paths.FailedDir(), ec);
  const bool existed = AnythingLeft(paths);
  if (existed) {
    // The lock file goes with the folder; without a folder there is nobody to exclude.
    Result<Fd> lock = std::filesystem::exists(paths.Dir(), ec) ? LockLab(paths) : Result<Fd>(Fd());
    if (!lock) return tl::make_unexpected(lock.error());
    if (auto r = TearDown(paths); !r) return r;
  }
  if (globals.json) {
    fmt::print("{}\n",
               Json{{"schema", "mlnet-lab.down/1"}, {"name", globals.name}, {"existed", existed}}.dump());
  } else {
    fmt::print("lab '{}' {}\n", globals.name, existed ? "is gone" : "does not exist; nothing to do");
  }
  return {};
}

}  // namespace

void AddDownCommand(CLI::App& app, Globals& globals) {
  SetAction(app.add_subcommand("down", "Remove a lab, also one that was left by a crash"), globals,
            [&globals] { return Down(globals); });
}

}  // namespace mlnet::lab
