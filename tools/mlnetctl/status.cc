// SPDX-License-Identifier: Apache-2.0
// mlnetctl status: one glance, and what to do next.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "mlnetctl/commands.h"

namespace mlnet::ctl {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollInterval{200};

bool IsOk(const Json& status) { return Text(status, "state") == "ok"; }

/// What an operator would want to do now; empty when all is well and in use.
std::string NextStep(const Json& status) {
  for (const Json& problem : Items(status, "problems")) {
    if (const std::string hint = Text(problem, "hint"); hint != "-") return hint;
  }
  const Json& ifaces = Items(status, "ifaces");
  const auto is_attached = [](const Json& iface) { return Text(iface, "attached") == "yes"; };
  if (std::none_of(ifaces.begin(), ifaces.end(), is_attached)) return "mlnetctl iface attach NAME";
  for (const Json& job : Items(status, "jobs")) {
    if (Text(job, "state") == "failed") return "mlnetctl job show " + Text(job, "name");
    if (Text(job, "state") == "joining") {
      return fmt::format("start the missing ranks of job {0}, or see who is there: mlnetctl job show {0}",
                         Text(job, "name"));
    }
  }
  if (Items(status, "jobs").empty())
    return "start training with backend \"mlnet\"; its job appears by itself";
  return "";
}

void PrintStatus(Context& context, const Json& status) {
  const bool color = context.options.use_color;
  auto& out = context.out();
  const std::string state = Text(status, "state");
  out << fmt::format("mlnetd on {} (instance {}): {}, pid {}, up {}\n", Text(status, "host"),
                     Text(status, "instance"), Paint(state, IsOk(status) ? Tone::kGood : Tone::kBad, color),
                     Text(status, "pid"), Duration(rpc::GetOr<uint64_t>(status, "uptime_s", 0).value_or(0)));
  for (const Json& problem : Items(status, "problems")) {
    out << "  " << Paint("problem:", Tone::kBad, color) << " " << Text(problem, "message") << "\n";
    if (Text(problem, "hint") != "-") out << "    try: " << Text(problem, "hint") << "\n";
  }
  if (const Table table = IfaceTable(Items(status, "ifaces")); !table.empty())
    out << "\n" << table.Render(color);
  if (const Table table = JobTable(Items(status, "jobs")); !table.empty()) out << "\n" << table.Render(color);
  out.flush();
  if (const std::string next = NextStep(status); !next.empty()) context.Say("\nnext: " + next);
}

int Status(Context& context, double wait_s) {
  const auto deadline = steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(wait_s * 1000));
  auto status = context.Call("status");
  while ((!status || !IsOk(*status)) && steady_clock::now() < deadline) {
    if (!status) context.Disconnect();
    std::this_thread::sleep_for(kPollInterval);
    status = context.Call("status");
  }
  if (!status) return context.Fail(status.error());
  if (context.options.json)
    context.PrintJson(*status);
  else
    PrintStatus(context, *status);
  return IsOk(*status) ? kExitOk : kExitDegraded;
}

}  // namespace

void AddStatus(CLI::App& app, Context& context) {
  auto wait_s = std::make_shared<double>(0);
  CLI::App* status =
      app.add_subcommand("status", "one glance at daemon, interfaces and jobs; exit code 8 if degraded");
  status->add_option("--wait", *wait_s, "seconds to wait for the daemon to come up and be ok")
      ->check(CLI::NonNegativeNumber);
  status->callback(
      [&context, wait_s] { context.action = [&context, wait_s] { return Status(context, *wait_s); }; });
}

}  // namespace mlnet::ctl
