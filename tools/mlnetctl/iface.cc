// SPDX-License-Identifier: Apache-2.0
// mlnetctl iface: which interfaces carry mlnet's program.
#include <fmt/format.h>

#include <memory>

#include "mlnetctl/commands.h"

namespace mlnet::ctl {
namespace {

struct AttachArgs {
  std::string name;
  std::string mode;
  std::string share;
  bool aggregator = false;
  bool no_aggregator = false;
};

std::string ShowAttached(const Json& iface) {
  std::string text = fmt::format("{}: attached in {} mode through {}, program {}", Text(iface, "name"),
                                 Text(iface, "mode"), Text(iface, "via"), Text(iface, "prog_id"));
  if (const std::string why = Text(iface, "why"); why != "-") text += fmt::format(" ({})", why);
  return text;
}

// A name, or a list in the grammar of NCCL_SOCKET_IFNAME.
bool IsList(const std::string& name) { return name.find_first_of("^=,") != std::string::npos; }

void SayAttachedAndSkipped(Context& context, const Json& result) {
  for (const Json& iface : Items(result, "ifaces")) context.Say(ShowAttached(iface));
  for (const Json& iface : Items(result, "skipped")) {
    context.Say(fmt::format("{}: left out: {}", Text(iface, "name"), Text(iface, "why")));
  }
}

int Attach(Context& context, const AttachArgs& args) {
  Json params = {{IsList(args.name) ? "match" : "name", args.name}};
  if (!args.mode.empty()) params["mode"] = args.mode;
  if (!args.share.empty()) params["share"] = args.share;
  if (args.aggregator || args.no_aggregator) params["aggregator"] = args.aggregator;
  const auto result = context.Call("iface.attach", params);
  if (!result) return context.Fail(result.error());
  if (context.options.json) context.PrintJson(*result);
  if (IsList(args.name)) SayAttachedAndSkipped(context, *result);
  else context.Say(ShowAttached(*result));
  return kExitOk;
}

int Detach(Context& context, const std::string& name) {
  const auto result = context.Call("iface.detach", {{"name", name}});
  if (!result) return context.Fail(result.error());
  if (context.options.json) context.PrintJson(*result);
  context.Say(fmt::format("{}: detached", name));
  return kExitOk;
}

int ListIfaces(Context& context) {
  const auto result = context.Call("iface.list");
  if (!result) return context.Fail(result.error());
  if (context.options.json) {
    context.PrintJson(*result);
    return kExitOk;
  }
  const Table table = IfaceTable(Items(*result, "ifaces"));
  if (table.empty()) {
    context.Say("no interface is known to mlnetd\n  try: mlnetctl iface attach NAME");
    return kExitOk;
  }
  context.out() << table.Render(context.options.use_color);
  return kExitOk;
}

}  // namespace

Table IfaceTable(const Json& ifaces) {
  Table table({"IFACE", "ATTACHED", "MODE", "VIA", "TAGS", "AGGREGATOR", "PROGRAM", "ADDRESS", "MTU", "SPEED",
               "DRIVER", "WHY"});
  for (const Json& iface : ifaces) {
    const auto speed = rpc::GetOr<int64_t>(iface, "speed_mbps", 0);
    table.Add({Text(iface, "name"), Text(iface, "attached"), Text(iface, "mode"), Text(iface, "via"),
               Text(iface, "tags"), Text(iface, "aggregator"), Text(iface, "prog_id"), Text(iface, "address"), Text(iface, "mtu"),
               LinkSpeed(speed.value_or(0)), Text(iface, "driver"),
               Text(iface, "why") == "-" ? "" : Text(iface, "why")});
    table.PaintLast(1, Text(iface, "attached") == "yes" ? Tone::kGood : Tone::kWarn);
  }
  return table;
}

void AddIface(CLI::App& app, Context& context) {
  CLI::App* iface = app.add_subcommand("iface", "attach, detach and list interfaces")->require_subcommand(1);

  auto args = std::make_shared<AttachArgs>();
  CLI::App* attach = iface->add_subcommand("attach", "put mlnet's program on an interface");
  attach->add_option("NAME", args->name, "interface, for example eth0; several as in NCCL_SOCKET_IFNAME: eth,ib or =eth0,eth1 or ^docker,lo")->required();
  attach->add_option("-m,--mode", args->mode, "native, generic or auto (default: as configured)")
      ->check(CLI::IsMember({"native", "generic", "auto"}));
  attach->add_option("--share", args->share, "exclusive, or shared with other XDP programs through libxdp")
      ->check(CLI::IsMember({"exclusive", "shared"}));
  CLI::Option* yes = attach->add_flag("--aggregator", args->aggregator, "this host may sum for others");
  attach->add_flag("--no-aggregator", args->no_aggregator, "this host only works")->excludes(yes);
  attach->callback(
      [&context, args] { context.action = [&context, args] { return Attach(context, *args); }; });

  auto name = std::make_shared<std::string>();
  CLI::App* detach = iface->add_subcommand("detach", "take mlnet's program off an interface");
  detach->add_option("NAME", *name, "interface")->required();
  detach->callback(
      [&context, name] { context.action = [&context, name] { return Detach(context, *name); }; });

  CLI::App* list = iface->add_subcommand("list", "interfaces, their mode and why it was chosen");
  list->callback([&context] { context.action = [&context] { return ListIfaces(context); }; });
}

}  // namespace mlnet::ctl
