// SPDX-License-Identifier: Apache-2.0
#include "plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "plan/cost.h"
#include "plan/render.h"
#include "plan/trees.h"
#include "plan/weights.h"

namespace mlnet::plan {
namespace {

constexpr std::pair<Shape, const char*> kNames[] = {
    {Shape::kStar, "star"}, {Shape::kShards, "shards"},          {Shape::kWorkers, "workers"},
    {Shape::kRack, "rack"}, {Shape::kRackShards, "rack-shards"}, {Shape::kBinary, "binary"},
    {Shape::kDegree, "degree"}};

// Rounding and weights that were cut off must not decide between shapes that are equally fast.
constexpr double kTie = 1e-3;

void ShareOut(const Site& site, Variant& trees) {
  std::vector<std::vector<double>> seconds;
  for (const Tree& tree : trees) {
    std::vector<double> loads = LoadsOf(site, tree);
    for (size_t l = 0; l < loads.size(); ++l)
      loads[l] = site.links[l].rate_bps > 0 ? loads[l] / site.links[l].rate_bps : 0;
    seconds.push_back(std::move(loads));
  }
  const std::vector<double> weights = BalanceWeights(seconds);
  for (size_t t = 0; t < trees.size(); ++t) trees[t].weight = weights[t];
  trees.erase(std::remove_if(trees.begin(), trees.end(), [](const Tree& t) { return t.weight == 0; }), trees.end());
}

std::string RootsOf(const Site& site, const std::vector<Tree>& trees) {
  std::set<size_t> roots;
  bool are_workers = true;
  for (const Tree& tree : trees) {
    roots.insert(tree.nodes[0].host);
    are_workers = are_workers && site.ranks_on[tree.nodes[0].host] > 0;
  }
  if (roots.size() == 1) return site.cluster.hosts[*roots.begin()].name;
  return fmt::format("{} {}hosts", roots.size(), are_workers ? "worker " : "");
}

Candidate MakeCandidate(const Site& site, Shape shape) {
  Candidate best;
  best.shape = shape;
  auto variants = VariantsOf(site, shape);
  if (!variants) {
    best.why_not = variants.error().message;
    return best;
  }
  for (Variant& trees : *variants) {
    ShareOut(site, trees);
    Prediction predicted = Predict(site, trees);
    if (!best.trees.empty() && predicted.seconds >= best.predicted.seconds * (1 - 1e-9)) continue;
    best.trees = std::move(trees);
    best.predicted = std::move(predicted);
  }
  best.roots = RootsOf(site, best.trees);
  return best;
}

// Equally fast: the fewest trees, then the fewest levels, then the first.
size_t Fastest(const std::vector<Candidate>& candidates) {
  double least = -1;
  for (const Candidate& c : candidates) {
    if (c.is_possible() && (least < 0 || c.predicted.seconds < least)) least = c.predicted.seconds;
  }
  size_t best = candidates.size();
  const auto simplicity = [&](size_t i) {
    return std::pair(candidates[i].trees.size(), candidates[i].predicted.levels);
  };
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].is_possible() || candidates[i].predicted.seconds > least * (1 + kTie)) continue;
    if (best == candidates.size() || simplicity(i) < simplicity(best)) best = i;
  }
  return best;
}

std::string LimitOf(const Candidate& c) {
  if (c.predicted.limiting_link.empty()) return "limited by latency alone, no link has a rate";
  return fmt::format("limited by {}", c.predicted.limiting_link);
}

std::string ReasonFor(const Plan& plan, size_t fastest) {
  const Candidate& choice = plan.choice();
  const auto described = [](const Candidate& c) {
    return fmt::format("{} over {}", NameOf(c.shape), c.roots);
  };
  if (plan.chosen != fastest) {
    const Candidate& best = plan.candidates[fastest];
    return fmt::format("{} was asked for and takes {}, {}; {} would take {}.", described(choice),
                       SecondsText(choice.predicted.seconds), LimitOf(choice), described(best),
                       SecondsText(best.predicted.seconds));
  }
  const Candidate* next = nullptr;
  for (size_t i = 0; i < plan.candidates.size(); ++i) {
    const Candidate& c = plan.candidates[i];
    if (i == plan.chosen || !c.is_possible()) continue;
    if (next == nullptr || c.predicted.seconds < next->predicted.seconds) next = &c;
  }
  std::string text = fmt::format("{} takes {}, {}", described(choice), SecondsText(choice.predicted.seconds),
                                 LimitOf(choice));
  if (next == nullptr) return text + "; no other shape is possible here.";
  if (next->predicted.seconds <= choice.predicted.seconds * (1 + kTie))
    return text + fmt::format("; {} is as fast but not as simple.", described(*next));
  return text + fmt::format("; the next best, {}, takes {} ({:.2f} x).", described(*next),
                            SecondsText(next->predicted.seconds),
                            next->predicted.seconds / choice.predicted.seconds);
}

}  // namespace

const char* NameOf(Shape shape) {
  for (const auto& [value, name] : kNames) {
    if (value == shape) return name;
  }
  return "?";
}

std::optional<Shape> ShapeFromName(const std::string& name) {
  for (const auto& [value, text] : kNames) {
    if (name == text) return value;
  }
  return std::nullopt;
}

std::vector<std::string> ShapeNames() {
  std::vector<std::string> names;
  for (const auto& [value, name] : kNames) names.emplace_back(name);
  return names;
}

Result<Plan> MakePlan(const Cluster& cluster, const Job& job, const Settings& settings, std::optional<Shape> wanted) {
  const auto site = MakeSite(cluster, job, settings);
  if (!site) return tl::make_unexpected(site.error());
  Plan plan;
  for (const auto& [shape, name] : kNames) plan.candidates.push_back(MakeCandidate(*site, shape));
  const size_t fastest = Fastest(plan.candidates);
  if (fastest == plan.candidates.size()) {
    return Err(ErrorCode::kUnavailable, "no shape is possible: " + plan.candidates.front().why_not,
               "let at least one host aggregate");
  }
  plan.chosen = wanted ? static_cast<size_t>(*wanted) : fastest;
  if (!plan.choice().is_possible()) {
    return Err(ErrorCode::kUnsupported,
               fmt::format("shape {} is not possible here: {}", NameOf(*wanted), plan.choice().why_not),
               fmt::format("leave the choice to the planner: {}", NameOf(plan.candidates[fastest].shape)));
  }
  plan.bound_s = BoundSeconds(*site);
  plan.rings = RingsOf(*site);
  plan.reason = ReasonFor(plan, fastest);
  return plan;
}

}  // namespace mlnet::plan
