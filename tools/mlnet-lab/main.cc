// SPDX-License-Identifier: Apache-2.0
// mlnet-lab: a cluster on one machine. Each subcommand is a file of its own.
#include "commands.h"

int main(int argc, char** argv) {
  mlnet::lab::Globals globals;
  CLI::App app{"A cluster of network namespaces to try, test and measure mlnet in", "mlnet-lab"};
  app.set_version_flag("--version", MLNET_VERSION);
  app.add_option("--name", globals.name, "Name of the lab")->capture_default_str();
  app.add_flag("-j,--json", globals.json, "Print JSON");
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(
      "Exit codes: 0 done, 1 failed, 2 wrong use, 3 no such lab or host, 4 not permitted,\n"
      "5 exists or busy, 6 the kernel lacks something.");
  mlnet::lab::AddUpCommand(app, globals);
  mlnet::lab::AddDownCommand(app, globals);
  mlnet::lab::AddTopologyCommand(app, globals);
  mlnet::lab::AddStatusCommand(app, globals);
  mlnet::lab::AddExecCommand(app, globals);
  mlnet::lab::AddXdpCommand(app, globals);
  mlnet::lab::AddFaultCommand(app, globals);
  mlnet::lab::AddPerfCommand(app, globals);
  mlnet::lab::AddJobsCommand(app, globals);
  mlnet::lab::AddLayersCommand(app, globals);
  mlnet::lab::AddUrgentCommand(app, globals);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  return globals.exit_code;
}
