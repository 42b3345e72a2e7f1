// SPDX-License-Identifier: Apache-2.0
// mlnetctl version: of this program, and of the daemon where one answers.
#include <fmt/format.h>

#include "mlnetctl/commands.h"

namespace mlnet::ctl {
namespace {

int Version(Context& context) {
  const auto daemon = context.Call("version");
  if (!daemon && context.is_reachable()) return context.Fail(daemon.error());
  if (context.options.json) {
    Json result = daemon ? *daemon : Json{{"schema", "mlnet.version/1"}, {"version", nullptr}};
    result["mlnetctl"] = MLNET_VERSION;
    context.PrintJson(result);
    return kExitOk;
  }
  context.out() << "mlnetctl " << MLNET_VERSION << "\n";
  if (!daemon) {
    context.Say("mlnetd does not answer at " + context.options.socket);
    return kExitOk;
  }
  context.out() << fmt::format("mlnetd {} on {} (instance {}), map layout {}, protocol {}, libbpf {}\n",
                               Text(*daemon, "version"), Text(*daemon, "host"), Text(*daemon, "instance"),
                               Text(*daemon, "abi"), Text(*daemon, "proto"), Text(*daemon, "libbpf"));
  if (Text(*daemon, "version") != MLNET_VERSION) context.Say("  try: install the same version of both");
  return kExitOk;
}

}  // namespace

void AddVersion(CLI::App& app, Context& context) {
  CLI::App* version = app.add_subcommand("version", "version of mlnetctl and of the daemon");
  version->callback([&context] { context.action = [&context] { return Version(context); }; });
}

}  // namespace mlnet::ctl
