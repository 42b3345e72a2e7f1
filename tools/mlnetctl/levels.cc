// SPDX-License-Identifier: Apache-2.0
// mlnetctl stats JOB --levels: a job's trees from the ranks up to the root.
#include <fmt/format.h>

#include "mlnetctl/commands.h"

namespace mlnet::ctl {
namespace {

std::string Decimal(const Json& object, const char* key, int digits) {
  const auto number = rpc::Find<double>(object, key);
  return number && *number ? fmt::format("{:.{}f}", **number, digits) : "-";
}

std::string Slowest(const Json& of) {
  const auto it = of.find("slowest");
  if (it == of.end() || !it->is_object()) return "-";
  return fmt::format("{} ({} us)", Text(*it, "child"), Decimal(*it, "lag_us", 1));
}

std::string NameOfLevel(const Json& level) {
  const std::string number = Text(level, "level");
  return number == "0" ? "root" : number;
}

std::vector<std::string> Row(const std::string& tree, const std::string& level, const std::string& node,
                             const std::string& children, const Json& of) {
  return {tree, level, node, children, Text(of, "packets_in"), Text(of, "packets_out"), Decimal(of, "reduction", 2),
          Text(of, "resends"), Decimal(of, "lag_us", 1), Slowest(of)};
}

Table LevelTable(const Json& job) {
  Table table({"TREE", "LEVEL", "NODE", "CHILDREN", "IN", "OUT", "REDUCTION", "RESENDS", "LAG us", "SLOWEST CHILD"});
  for (size_t column : {3, 4, 5, 6, 7, 8}) table.AlignRight(column);
  const Json ranks = job.value("ranks", Json::object());
  table.Add(Row("", "ranks", "all " + Text(ranks, "ranks"), "", ranks));
  for (const Json& tree : Items(job, "trees")) {
    for (const Json& level : Items(tree, "levels")) {
      const Json& nodes = Items(level, "nodes");
      const std::string name = NameOfLevel(level);
      if (nodes.size() > 1) {
        table.Add(Row(Text(tree, "tree"), name, fmt::format("all {}", nodes.size()), "", level));
        for (size_t column = 0; column < 10; ++column) table.PaintLast(column, Tone::kBold);
      }
      for (const Json& node : nodes) table.Add(Row(Text(tree, "tree"), name, Text(node, "host"), Text(node, "children"), node));
    }
  }
  return table;
}

Table ChildTable(const Json& job) {
  Table table({"TREE", "NODE", "CHILD", "SAMPLES", "LAG us"});
  for (size_t column : {3, 4}) table.AlignRight(column);
  for (const Json& tree : Items(job, "trees")) {
    for (const Json& level : Items(tree, "levels")) {
      for (const Json& node : Items(level, "nodes")) {
        for (const Json& child : Items(node, "lag")) {
          table.Add({Text(tree, "tree"), Text(node, "host"), Text(child, "child"), Text(child, "samples"), Decimal(child, "mean_us", 1)});
        }
      }
    }
  }
  return table;
}

}  // namespace

int ShowLevels(Context& context, const std::string& job, std::optional<int> tree) {
  Json params = {{"name", job}};
  if (tree) params["tree"] = *tree;
  const auto result = context.Call("job.levels", params);
  if (!result) return context.Fail(result.error());
  if (context.options.json) {
    context.PrintJson(*result);
    return kExitOk;
  }
  if (Items(*result, "trees").empty()) {
    context.Say(fmt::format("job {} is {}: it has no trees yet", job, Text(*result, "state")));
    return kExitOk;
  }
  context.out() << LevelTable(*result).Render(context.options.use_color);
  if (const Table children = ChildTable(*result); !children.empty()) context.out() << "\n" << children.Render(context.options.use_color);
  return kExitOk;
}

}  // namespace mlnet::ctl
