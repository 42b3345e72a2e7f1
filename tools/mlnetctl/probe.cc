// SPDX-License-Identifier: Apache-2.0
// mlnetctl probe: can this machine run mlnet, and what would help. The kernel is judged with or without
// a daemon; a daemon adds its own checks (they are of the process that does the work) and the interfaces.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "mlnetctl/commands.h"
#include "mlnetctl/kernel_checks.h"

namespace mlnet::ctl {
namespace {

Json ToJson(const Check& check) {
  return {{"name", check.name}, {"ok", check.is_ok}, {"detail", check.detail}, {"hint", check.hint}};
}

/// The local checks, each replaced by the daemon's of the same name, then what only the daemon knows. What
/// this process may do does not matter when a daemon does the work.
Json Merge(const std::vector<Check>& local, const Json& daemon_checks) {
  Json merged = Json::array();
  for (const Check& check : local) {
    if (daemon_checks.empty() || check.name != "capabilities") merged.push_back(ToJson(check));
  }
  for (const Json& check : daemon_checks) {
    const auto same = std::find_if(merged.begin(), merged.end(), [&](const Json& other) {
      return Text(other, "name") == Text(check, "name");
    });
    if (same != merged.end())
      *same = check;
    else
      merged.push_back(check);
  }
  return merged;
}

/// The gravest failure decides: a kernel that cannot, then a missing permission, then what can be set.
int ExitCodeOfChecks(const Json& checks, const std::vector<Check>& local) {
  int code = kExitOk;
  const auto rank = [](int c) {
    return c == kExitUnsupported ? 3 : c == kExitPermission ? 2 : c == kExitFailed ? 1 : 0;
  };
  for (const Json& check : checks) {
    if (Text(check, "ok") == "yes") continue;
    const auto known = std::find_if(local.begin(), local.end(),
                                    [&](const Check& other) { return other.name == Text(check, "name"); });
    const int failed = known != local.end() ? known->exit_code : static_cast<int>(kExitFailed);
    if (rank(failed) > rank(code)) code = failed;
  }
  return code;
}

void PrintProbe(Context& context, const Json& probe) {
  const bool color = context.options.use_color;
  auto& out = context.out();
  out << "kernel " << Text(probe, "kernel") << "\n";
  Table table({"CHECK", "RESULT", "FOUND", "TRY"});
  for (const Json& check : Items(probe, "checks")) {
    const bool ok = Text(check, "ok") == "yes";
    const std::string hint = Text(check, "hint");
    table.Add(
        {Text(check, "name"), ok ? "ok" : "not ok", Text(check, "detail"), ok || hint == "-" ? "" : hint});
    table.PaintLast(1, ok ? Tone::kGood : Tone::kBad);
  }
  out << table.Render(color);
  const Table ifaces = IfaceTable(Items(probe, "ifaces"));
  if (!ifaces.empty()) out << "\n" << ifaces.Render(color);
  out.flush();
}

int Probe(Context& context) {
  const std::vector<Check> local = CheckKernel(context.kernel_root);
  Json probe = {
      {"schema", "mlnet.probe/1"}, {"kernel", KernelRelease(context.kernel_root)}, {"ifaces", Json::array()}};
  const auto daemon = context.Call("probe");
  if (!daemon && context.is_reachable()) return context.Fail(daemon.error());
  probe["checks"] = Merge(local, daemon ? Items(*daemon, "checks") : Json::array());
  probe["daemon"] = daemon.has_value();
  if (daemon) probe["ifaces"] = Items(*daemon, "ifaces");

  if (context.options.json)
    context.PrintJson(probe);
  else
    PrintProbe(context, probe);
  if (!daemon) {
    context.Say(fmt::format("\nno daemon: interfaces not probed ({})\n  try: {}", daemon.error().message,
                            daemon.error().hint.empty() ? "start mlnetd" : daemon.error().hint));
  }
  return ExitCodeOfChecks(probe["checks"], local);
}

}  // namespace

void AddProbe(CLI::App& app, Context& context) {
  CLI::App* probe = app.add_subcommand("probe", "can this kernel and NIC run mlnet, and what would help");
  probe->callback([&context] { context.action = [&context] { return Probe(context); }; });
}

}  // namespace mlnet::ctl
