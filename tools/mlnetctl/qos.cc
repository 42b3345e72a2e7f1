// SPDX-License-Identifier: Apache-2.0
// mlnetctl qos: a queue for each priority on a NIC of this host.
#include <fmt/format.h>

#include <memory>

#include "mlnetctl/commands.h"

namespace mlnet::ctl {
namespace {

struct QosChange {
  std::string name;
  std::string kind;
  std::string rate;
  std::vector<uint32_t> weights;
};

void PrintIface(Context& context, const Json& iface) {
  const bool color = context.options.use_color;
  auto& out = context.out();
  out << Paint(Text(iface, "iface"), Tone::kBold, color) << ": ";
  if (Text(iface, "is_set") != "yes") {
    out << fmt::format("no queues by priority, its qdisc is {}\n", Text(iface, "qdisc"));
    return;
  }
  out << fmt::format("{} priority by {}, in the place of {}\n", Text(iface, "mode"), Text(iface, "qdisc"), Text(iface, "before"));
  Table table({"CLASS", "DSCP", "PRIORITY", "BAND", "QUEUE", "WEIGHT"});
  for (const size_t column : {1, 2, 3, 5}) table.AlignRight(column);
  for (const Json& row : Items(iface, "classes")) {
    table.Add({Text(row, "class"), Text(row, "dscp"), Text(row, "priority"), Text(row, "band"), Text(row, "queue"), Text(row, "weight")});
  }
  out << table.Render(color, 2) << "  " << Text(iface, "note") << "\n";
}

int PrintResult(Context& context, const Result<Json>& result) {
  if (!result) return context.Fail(result.error());
  if (context.options.json) context.PrintJson(*result);
  else PrintIface(context, *result);
  return kExitOk;
}

int SetQos(Context& context, const QosChange& args) {
  Json params = {{"name", args.name}};
  if (!args.kind.empty()) params["kind"] = args.kind;
  if (!args.rate.empty()) params["rate"] = args.rate;
  if (!args.weights.empty()) params["weights"] = args.weights;
  return PrintResult(context, context.Call("qos.set", params));
}

int ShowQos(Context& context, const std::string& name) {
  const auto result = context.Call("qos.show", name.empty() ? Json::object() : Json{{"name", name}});
  if (!result) return context.Fail(result.error());
  if (context.options.json) {
    context.PrintJson(*result);
    return kExitOk;
  }
  for (const Json& iface : Items(*result, "ifaces")) PrintIface(context, iface);
  if (Items(*result, "ifaces").empty()) context.Say("no interface carries the program\n  try: mlnetctl iface attach NAME");
  return kExitOk;
}

}  // namespace

void AddQos(CLI::App& app, Context& context) {
  CLI::App* qos = app.add_subcommand("qos", "queues by traffic class on an interface")->require_subcommand(1);

  auto args = std::make_shared<QosChange>();
  CLI::App* set = qos->add_subcommand("set", "a queue for each class; the qdisc that was there comes back with clear, and when mlnetd stops");
  set->add_option("NAME", args->name, "interface")->required();
  set->add_option("--weights", args->weights, "of classes 0 to 7, such as 1,1,2,2,4,4,8,8; default: strict priority")
      ->delimiter(',')
      ->expected(8)
      ->check(CLI::Range(1, 100));
  set->add_option("--kind", args->kind, "qdisc; default: the first that the kernel has of mqprio, prio, ets, htb")
      ->check(CLI::IsMember({"auto", "mqprio", "prio", "ets", "htb"}));
  set->add_option("--rate", args->rate, "of the link, such as 25gbit, where the driver does not say (htb)");
  set->callback([&context, args] { context.action = [&context, args] { return SetQos(context, *args); }; });

  auto shown = std::make_shared<std::string>();
  CLI::App* show = qos->add_subcommand("show", "class, DSCP and queue of each interface that carries the program");
  show->add_option("NAME", *shown, "only this interface");
  show->callback([&context, shown] { context.action = [&context, shown] { return ShowQos(context, *shown); }; });

  auto cleared = std::make_shared<std::string>();
  CLI::App* clear = qos->add_subcommand("clear", "bring back the qdisc that was there");
  clear->add_option("NAME", *cleared, "interface")->required();
  clear->callback([&context, cleared] {
    context.action = [&context, cleared] { return PrintResult(context, context.Call("qos.clear", {{"name", *cleared}})); };
  });
}

}  // namespace mlnet::ctl
