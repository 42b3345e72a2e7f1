// SPDX-License-Identifier: Apache-2.0
#include "daemon/levels.h"

#include <algorithm>
#include <map>

#include "control/job.h"
#include "control/plan.h"
#include "control/tree.h"

namespace mlnet::daemon {

using control::Json;
using control::JobView;
using control::Plan;

namespace {

// Who keeps a node waiting, by its mean arrival behind the first contribution of a set.
struct Lag {
  double total_us = 0;
  uint64_t samples = 0;
  std::string child;  // the slowest
  std::string host;   // at whose node
  double slowest_us = 0;

  void Add(const Lag& other) {
    total_us += other.total_us;
    samples += other.samples;
    if (other.child.empty() || (!child.empty() && other.slowest_us <= slowest_us)) return;
    child = other.child;
    host = other.host;
    slowest_us = other.slowest_us;
  }
};

// Of one node, a level, or a job.
struct Activity {
  uint64_t packets_in = 0, packets_out = 0, resends = 0, held = 0, words_summed = 0;
  Lag lag;

  void Add(const Activity& other) {
    packets_in += other.packets_in;
    packets_out += other.packets_out;
    resends += other.resends;
    held += other.held;
    words_summed += other.words_summed;
    lag.Add(other.lag);
  }
};

Json CountersOfNode(const std::vector<Store::Counters>& counters, const std::string& host, size_t tree) {
  const Json* body = BodyOf(counters, "host " + host);
  if (body == nullptr || !body->contains("trees")) return Json::object();
  for (const Json& row : (*body)["trees"]) {
    if (Count(row, "tree") == tree) return row;
  }
  return Json::object();
}

// The other children are nodes of hosts below.
bool IsRank(const Plan& plan, size_t tree, size_t node, const control::TreeChild& child) {
  return child.ranks.size() == 1 && NodeOfRank(plan, tree, child.ranks.front()) == node;
}

std::string NameOfChild(const Plan& plan, size_t tree, size_t node, const control::TreeChild& child) {
  return IsRank(plan, tree, node, child) ? "rank " + std::to_string(child.ranks.front()) : "host " + child.host;
}

// By child index: {child, samples, mean_us}.
Json LagOfChildren(const Plan& plan, size_t tree, size_t node, const Json& row) {
  Json lag = Json::array();
  const Json links = row.value("lag", Json::array());
  const auto children = ChildrenOf(plan, tree, node);
  for (size_t i = 0; i < children.size() && i < links.size(); ++i) {
    lag.push_back({{"child", NameOfChild(plan, tree, node, children[i])}, {"samples", links[i][0]}, {"mean_us", links[i][1]}});
  }
  return lag;
}

Activity NodeActivity(const Json& row, const Json& lag, const std::string& host) {
  Activity node{Count(row, "packets_in"), Count(row, "packets_out"), Count(row, "resends"),
                Count(row, "held"),       Count(row, "words_summed"), {}};
  for (const Json& child : lag) {
    const uint64_t samples = child["samples"];
    const double mean_us = child["mean_us"];
    if (samples > 0) node.lag.Add({mean_us * static_cast<double>(samples), samples, child["child"], host, mean_us});
  }
  return node;
}

Json ToJson(const Activity& a) {
  const auto ratio = [](double x, uint64_t y) { return y == 0 ? Json(nullptr) : Json(x / static_cast<double>(y)); };
  Json json = {{"packets_in", a.packets_in},
               {"packets_out", a.packets_out},
               {"reduction", ratio(static_cast<double>(a.packets_in), a.packets_out)},
               {"resends", a.resends},
               {"held", a.held},
               {"lag_us", ratio(a.lag.total_us, a.lag.samples)},
               {"slowest", nullptr}};
  if (a.lag.samples > 0) json["slowest"] = {{"child", a.lag.child}, {"at", a.lag.host}, {"lag_us", a.lag.slowest_us}};
  return json;
}

size_t LevelOf(const control::PlanTree& tree, size_t node) {
  size_t level = 0;
  for (int at = tree.nodes[node].parent; at >= 0; at = tree.nodes[static_cast<size_t>(at)].parent) ++level;
  return level;
}

/// Calls `visit(node, level, row)` for every node of the tree that sums.
void ForEachNode(const Plan& plan, size_t tree, const std::vector<Store::Counters>& counters, const auto& visit) {
  for (size_t node = 0; node < plan.trees[tree].nodes.size(); ++node) {
    if (!IsSumming(plan, tree, node)) continue;
    visit(node, LevelOf(plan.trees[tree], node), CountersOfNode(counters, PortOf(plan, tree, node).host, tree));
  }
}

Json TreeLevels(const Plan& plan, size_t tree, const std::vector<Store::Counters>& counters, bool with_children) {
  std::map<size_t, std::pair<Activity, Json>, std::greater<>> levels;  // the ranks' end first, as packets go
  ForEachNode(plan, tree, counters, [&](size_t node, size_t level, const Json& row) {
    const std::string& host = PortOf(plan, tree, node).host;
    const Json lag = LagOfChildren(plan, tree, node, row);
    const Activity activity = NodeActivity(row, lag, host);
    Json shown = ToJson(activity);
    shown["host"] = host;
    shown["children"] = ChildrenOf(plan, tree, node).size();
    if (with_children) shown["lag"] = lag;
    auto& [total, nodes] = levels.try_emplace(level, Activity{}, Json::array()).first->second;
    total.Add(activity);
    nodes.push_back(std::move(shown));
  });
  Json all = Json::array();
  for (const auto& [level, at] : levels) {
    Json shown = ToJson(at.first);
    shown["level"] = level;
    shown["nodes"] = at.second;
    all.push_back(std::move(shown));
  }
  return {{"tree", tree}, {"weight", plan.trees[tree].weight}, {"levels", all}};
}

// What ranks report is of all trees together.
Json Ranks(const JobView& view, const std::vector<Store::Counters>& counters) {
  uint64_t sent = 0, results = 0, again = 0;
  for (const Store::Counters& one : counters) {
    if (!one.source.starts_with("rank ")) continue;
    sent += Count(one.body, "packets_sent");
    results += Count(one.body, "results");
    again += Count(one.body, "retransmits");
  }
  return {{"ranks", view.job.world_size}, {"packets_out", sent}, {"packets_in", results}, {"resends", again}};
}

}  // namespace

uint64_t Count(const Json& body, const char* key) {
  const auto it = body.find(key);
  return it != body.end() && it->is_number_unsigned() ? it->get<uint64_t>() : 0;
}

const Json* BodyOf(const std::vector<Store::Counters>& counters, const std::string& source) {
  const auto it = std::find_if(counters.begin(), counters.end(), [&](const auto& c) { return c.source == source; });
  return it == counters.end() ? nullptr : &it->body;
}

Json NodeCounters(size_t tree, bool is_inner, const mlnet_stats& stats, const std::vector<mlnet_link>& links) {
  const auto sum = [&](std::initializer_list<mlnet_verdict> verdicts) {
    uint64_t count = 0;
    for (const mlnet_verdict v : verdicts) count += stats.verdicts[v];
    return count;
  };
  // A partial sum that waited for a packet that could carry it goes with a retry: it was not sent before.
  const uint64_t late = is_inner ? sum({MLNET_V_SUM_COMPLETE_UNSENT}) : 0;
  const uint64_t again = sum({MLNET_V_PARTIAL_AGAIN_TX, MLNET_V_PARTIAL_AGAIN_REDIRECT});
  const uint64_t out = is_inner ? sum({MLNET_V_PARTIAL_TX, MLNET_V_PARTIAL_REDIRECT}) + std::min(late, again) : stats.results;
  Json lag = Json::array();
  for (const mlnet_link& link : links) {
    const double mean_us = link.lag_count == 0 ? 0.0 : static_cast<double>(link.lag_ns) / static_cast<double>(link.lag_count) / 1e3;
    lag.push_back({link.lag_count, mean_us});
  }
  return {{"tree", tree},
          {"packets_in", stats.contributions},
          {"packets_out", out},
          {"resends", sum({MLNET_V_RESEND_RESULT}) + again - std::min(late, again)},
          {"held", sum({MLNET_V_HELD})},
          {"words_summed", stats.words_summed},
          {"lag", std::move(lag)}};
}

Json LevelsOf(const JobView& view, const std::vector<Store::Counters>& counters, std::optional<size_t> only) {
  const Plan& plan = view.job.plan;
  Json trees = Json::array();
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    if (!only || *only == t) trees.push_back(TreeLevels(plan, t, counters, only.has_value()));
  }
  return {{"schema", "mlnet.levels/1"}, {"name", view.job.name}, {"state", view.job.state}, {"ranks", Ranks(view, counters)}, {"trees", trees}};
}

Json LagOfRanks(const JobView& view, const std::vector<Store::Counters>& counters) {
  const Plan& plan = view.job.plan;
  std::vector<Lag> ranks(plan.host_of_rank.size());
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    ForEachNode(plan, t, counters, [&](size_t node, size_t, const Json& row) {
      const auto children = ChildrenOf(plan, t, node);
      const Json lag = LagOfChildren(plan, t, node, row);
      for (size_t i = 0; i < lag.size(); ++i) {
        if (!IsRank(plan, t, node, children[i])) continue;
        Lag& of = ranks[static_cast<size_t>(children[i].ranks.front())];
        const uint64_t samples = lag[i]["samples"];
        of.samples += samples;
        of.total_us += lag[i]["mean_us"].get<double>() * static_cast<double>(samples);
      }
    });
  }
  Json rows = Json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Lag& lag = ranks[rank];
    const Json mean_us = lag.samples == 0 ? Json(nullptr) : Json(lag.total_us / static_cast<double>(lag.samples));
    rows.push_back({{"rank", rank}, {"samples", lag.samples}, {"mean_us", mean_us}});
  }
  return rows;
}

Json ActivityOf(const JobView& view, const std::vector<Store::Counters>& counters) {
  const Plan& plan = view.job.plan;
  Activity total;
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    ForEachNode(plan, t, counters, [&](size_t node, size_t, const Json& row) {
      total.Add(NodeActivity(row, LagOfChildren(plan, t, node, row), PortOf(plan, t, node).host));
    });
  }
  Json row = ToJson(total);
  row["name"] = view.job.name;
  row["incarnation"] = view.job.incarnation;
  row["state"] = view.job.state;
  row["world_size"] = view.job.world_size;
  row["joined"] = std::count_if(view.members.begin(), view.members.end(), [](const auto& m) { return m.connected && m.rank != control::kServerRank; });
  row["bytes_summed"] = 8 * total.words_summed;
  row["resends"] = total.resends + Ranks(view, counters)["resends"].get<uint64_t>();
  return row;
}

}  // namespace mlnet::daemon
