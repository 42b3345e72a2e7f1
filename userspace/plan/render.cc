// SPDX-License-Identifier: Apache-2.0
#include "plan/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plan/planner.h"

namespace mlnet::plan {
namespace {

using Json = nlohmann::json;

constexpr size_t kColumns = 8;
constexpr size_t kDotTreesMax = 8;  // more than these are alike and make the picture unreadable
using Row = std::array<std::string, kColumns>;

std::string BytesText(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1000;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string LimitText(const Prediction& p) { return p.limiting_link.empty() ? "latency" : p.limiting_link; }

Row RowOf(std::string mark, std::string shape, std::string roots, std::string trees, const Prediction& p) {
  return {std::move(mark),           std::move(shape), std::move(roots),
          std::move(trees),          p.levels > 0 ? std::to_string(p.levels) : "-",
          SecondsText(p.seconds),    LimitText(p),     BytesText(p.core_bytes)};
}

// Numbers to the right; no blanks at the end of a line.
std::string Aligned(const std::vector<Row>& rows) {
  constexpr std::array<bool, kColumns> kRight = {false, false, false, true, true, true, false, true};
  std::array<size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (size_t c = 0; c < kColumns; ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t c = 0; c < kColumns; ++c) {
      line += kRight[c] ? fmt::format("{:>{}}", row[c], widths[c]) : fmt::format("{:<{}}", row[c], widths[c]);
      line += c == 0 ? " " : "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

Json PredictionJson(const Prediction& p) {
  Json links = Json::array();
  for (const LinkLoad& link : p.links) {
    links.push_back({{"link", link.name}, {"bytes", link.bytes}, {"rate_bps", link.rate_bps}, {"seconds", link.seconds}});
  }
  return {{"seconds", p.seconds},         {"bandwidth_s", p.bandwidth_s}, {"latency_s", p.latency_s},
          {"limiting_link", p.limiting_link}, {"levels", p.levels},       {"core_bytes", p.core_bytes},
          {"links", links}};
}

size_t RanksOn(const Job& job, const std::string& host) {
  return static_cast<size_t>(std::count(job.host_of_rank.begin(), job.host_of_rank.end(), host));
}

Json TreeJson(const Tree& tree, const Cluster& cluster, const Job& job) {
  Json nodes = Json::array();
  const auto name = [&](size_t node) { return cluster.hosts[tree.nodes[node].host].name; };
  for (size_t n = 0; n < tree.nodes.size(); ++n) {
    const Node& node = tree.nodes[n];
    Json children = Json::array();
    for (size_t child : node.children) children.push_back(name(child));
    nodes.push_back({{"host", name(n)},
                     {"parent", node.parent < 0 ? Json() : Json(name(static_cast<size_t>(node.parent)))},
                     {"children", children},
                     {"ranks", RanksOn(job, name(n))}});
  }
  return {{"weight", tree.weight}, {"nodes", nodes}};
}

std::string Quoted(const std::string& text) {
  std::string quoted;
  for (char c : text) quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return "\"" + quoted + "\"";
}

// The ids of equal hosts differ from tree to tree, so that each tree is drawn apart.
std::string DotTree(const Tree& tree, size_t index, const Cluster& cluster, const Job& job) {
  std::string text = fmt::format("  subgraph cluster_{} {{\n    label={};\n", index,
                                 Quoted(fmt::format("tree {}: {:.1f} %", index, tree.weight * 100)));
  for (size_t n = 0; n < tree.nodes.size(); ++n) {
    const Host& host = cluster.hosts[tree.nodes[n].host];
    const size_t ranks = RanksOn(job, host.name);
    std::string label = host.name;
    if (!host.rack.empty()) label += " (" + host.rack + ")";
    if (ranks > 0) label += fmt::format(", {} rank{}", ranks, ranks == 1 ? "" : "s");
    const bool sums = !tree.nodes[n].children.empty();
    text += fmt::format("    t{}_{} [label={}, shape={}];\n", index, n, Quoted(label), sums ? "box" : "ellipse");
  }
  for (size_t n = 0; n < tree.nodes.size(); ++n) {
    if (tree.nodes[n].parent >= 0) text += fmt::format("    t{}_{} -> t{}_{};\n", index, n, index, tree.nodes[n].parent);
  }
  return text + "  }\n";
}

}  // namespace

std::string SecondsText(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

std::string RenderText(const Plan& plan) {
  std::vector<Row> rows = {{"", "SHAPE", "ROOTS", "TREES", "LEVELS", "PREDICTED", "LIMIT", "CORE"}};
  std::string impossible;
  for (size_t i = 0; i < plan.candidates.size(); ++i) {
    const Candidate& c = plan.candidates[i];
    if (c.is_possible()) {
      rows.push_back(RowOf(i == plan.chosen ? "*" : " ", NameOf(c.shape), c.roots, std::to_string(c.trees.size()),
                           c.predicted));
    } else {
      impossible += fmt::format("  {:<11}  not possible: {}\n", NameOf(c.shape), c.why_not);
    }
  }
  for (const Ring& ring : plan.rings) rows.push_back(RowOf(" ", "(ring)", ring.order, "-", ring.predicted));
  return Aligned(rows) + impossible +
         fmt::format("\n{}\nNo plan can be faster than {}. (ring) is the all-reduce of float32 to compare with.\n",
                     plan.reason, SecondsText(plan.bound_s));
}

Json RenderJson(const Plan& plan, const Cluster& cluster, const Job& job) {
  Json candidates = Json::array(), rings = Json::array(), trees = Json::array();
  for (const Candidate& c : plan.candidates) {
    Json entry = {{"shape", NameOf(c.shape)}, {"possible", c.is_possible()}};
    if (c.is_possible()) {
      entry["roots"] = c.roots;
      entry["trees"] = c.trees.size();
      entry["predicted"] = PredictionJson(c.predicted);
    } else {
      entry["why_not"] = c.why_not;
    }
    candidates.push_back(std::move(entry));
  }
  for (const Ring& ring : plan.rings)
    rings.push_back({{"order", ring.order}, {"predicted", PredictionJson(ring.predicted)}});
  for (const Tree& tree : plan.choice().trees) trees.push_back(TreeJson(tree, cluster, job));
  return {{"schema", "mlnet.plan/1"},
          {"chosen", NameOf(plan.choice().shape)},
          {"reason", plan.reason},
          {"bound_s", plan.bound_s},
          {"world_size", job.host_of_rank.size()},
          {"bytes", job.bytes},
          {"lane_bits", job.lane_bits},
          {"multicast", job.multicast},
          {"trees", trees},
          {"candidates", candidates},
          {"rings", rings}};
}

std::string RenderDot(const Plan& plan, const Cluster& cluster, const Job& job) {
  const Candidate& choice = plan.choice();
  std::string text = "digraph plan {\n  rankdir=BT;\n";
  text += fmt::format("  label={};\n",
                      Quoted(fmt::format("{} over {}: {}, {} tree{}", NameOf(choice.shape), choice.roots,
                                         SecondsText(choice.predicted.seconds), choice.trees.size(),
                                         choice.trees.size() == 1 ? "" : "s")));
  const size_t shown = std::min(choice.trees.size(), kDotTreesMax);
  for (size_t t = 0; t < shown; ++t) text += DotTree(choice.trees[t], t, cluster, job);
  if (shown < choice.trees.size()) {
    text += fmt::format("  more [shape=plaintext, label=\"and {} more trees\"];\n", choice.trees.size() - shown);
  }
  return text + "}\n";
}

}  // namespace mlnet::plan
