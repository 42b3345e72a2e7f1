// SPDX-License-Identifier: Apache-2.0
#include "mlnetctl/cli.h"

#include <algorithm>

#include "mlnetctl/commands.h"

namespace mlnet::ctl {
namespace {

/// A command line that could not be understood still says whether its errors are to be JSON.
void GuessOutput(const std::vector<std::string>& args, GlobalOptions& options) {
  for (const std::string& arg : args) {
    if (arg == "--") return;
    const bool is_short = arg.size() > 1 && arg[0] == '-' && arg[1] != '-';
    const bool pretty = arg == "--pretty" || (is_short && arg.find('p') != std::string::npos);
    options.pretty |= pretty;
    options.json |= pretty || arg == "--json" || (is_short && arg.find('j') != std::string::npos);
  }
}

void AddGlobalOptions(CLI::App& app, GlobalOptions& options, std::string& color) {
  app.add_flag("-j,--json", options.json, "print JSON on stdout, errors as JSON on stderr");
  app.add_flag("-p,--pretty", options.pretty, "print indented JSON (implies -j)");
  app.add_flag("-q,--quiet", options.quiet, "say nothing but data and errors");
  app.add_flag("-v,--verbose", options.verbose,
               "say more on stderr; with stats, show counters that are 0 too");
  app.add_option("--socket", options.socket, "socket of mlnetd ($MLNET_SOCKET)")
      ->default_str(rpc::DefaultSocket());
  app.add_option("--timeout", options.timeout_s, "seconds to wait for an answer of mlnetd")
      ->check(CLI::PositiveNumber)
      ->default_str("10");
  app.add_option("--color", color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->default_str("auto");
}

void AddCommands(CLI::App& app, Context& context) {
  AddStatus(app, context);
  AddIface(app, context);
  AddJob(app, context);
  AddPlan(app, context);
  AddQos(app, context);
  AddStats(app, context);
  AddTop(app, context);
  AddTrace(app, context);
  AddProbe(app, context);
  AddVersion(app, context);
  AddCompletion(app, context);
}

/// Global options may stand anywhere on the line, whatever the depth of the command.
void LetOptionsFallThrough(CLI::App& app) {
  app.fallthrough();
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; }))
    LetOptionsFallThrough(*command);
}

}  // namespace

int RunCli(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
           const Environment& environment) {
  Context context(out, err);
  context.kernel_root = environment.kernel_root;
  context.options.socket = rpc::DefaultSocket();
  std::string color = "auto";

  CLI::App app("Operates mlnetd, which sums gradients in this host's kernel.", "mlnetctl");
  app.require_subcommand(1);
  app.footer(kExitCodeHelp);
  AddGlobalOptions(app, context.options, color);
  AddCommands(app, context);
  LetOptionsFallThrough(app);

  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 takes them last one first
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      app.exit(error, out, err);
      return kExitOk;
    }
    GuessOutput(args, context.options);
    const std::vector<std::string> unknown = app.remaining(true);
    const std::string message =
        unknown.empty() ? error.what() : "unknown command or option '" + unknown.front() + "'";
    PrintError(err, context.options, "E_USAGE", message, "mlnetctl --help");
    return kExitUsage;
  }
  context.options.json |= context.options.pretty;
  context.options.is_terminal = environment.out_is_terminal;
  context.options.use_color =
      color == "always" || (color == "auto" && environment.out_is_terminal && !environment.no_color);
  return context.action();
}

}  // namespace mlnet::ctl
