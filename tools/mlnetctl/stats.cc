// SPDX-License-Identifier: Apache-2.0
// mlnetctl stats: counters of the kernel's verdicts, once or again and again.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>

#include "mlnetctl/commands.h"

namespace mlnet::ctl {
namespace {

using std::chrono::steady_clock;

struct StatsArgs {
  std::string job;
  double interval_s = 0;
  int count = 0;  // 0: once without an interval, for ever with one
  bool levels = false;
  std::optional<int> tree;
};

uint64_t CountOf(const Json& verdict) {
  if (verdict.is_number_unsigned()) return verdict.get<uint64_t>();
  return rpc::GetOr<uint64_t>(verdict, "count", 0).value_or(0);
}

/// `now` with every counter reduced by what it was in `before`, as a rate per second.
Json RatesOf(const Json& now, const Json& before, double seconds) {
  Json rates = now;
  const auto rate = [&](uint64_t later, uint64_t earlier) {
    // A counter that shrank belongs to a daemon that has restarted: it counts from 0.
    const uint64_t delta = later >= earlier ? later - earlier : later;
    return static_cast<uint64_t>(static_cast<double>(delta) / seconds + 0.5);
  };
  for (const char* key : {"bytes_in", "contributions", "words_summed", "results"}) {
    rates[key] = rate(Number(now, key), Number(before, key));
  }
  for (Json& row : rates["tags"]) {
    uint64_t earlier = 0;
    for (const Json& old : Items(before, "tags")) {
      if (old["class"] == row["class"] && old["outcome"] == row["outcome"]) earlier = Number(old, "packets");
    }
    row["packets"] = rate(Number(row, "packets"), earlier);
  }
  const auto verdicts = rates.find("verdicts");
  if (verdicts == rates.end()) return rates;
  for (auto& [name, verdict] : verdicts->items()) {
    const Json earlier = before.value("verdicts", Json::object()).value(name, Json::object());
    verdict["count"] = rate(CountOf(verdict), CountOf(earlier));
  }
  return rates;
}

Table TagTable(const Json& stats) {
  Table table({"CLASS", "SENT", "PACKETS", "MEANING"});
  table.AlignRight(2);
  for (const Json& row : Items(stats, "tags")) {
    table.Add({Text(row, "class"), Text(row, "outcome"), Text(row, "packets"), Text(row, "help")});
  }
  return table;
}

void PrintStats(Context& context, const Json& stats, bool is_rate) {
  const char* per = is_rate ? "/s" : "";
  auto& out = context.out();
  out << fmt::format(
      "in {}{}   contributions {}{}   summed {}{}   results {}{}\n",
      Bytes(static_cast<double>(Number(stats, "bytes_in"))), per, Number(stats, "contributions"), per,
      Bytes(8.0 * static_cast<double>(Number(stats, "words_summed"))), per, Number(stats, "results"), per);
  const auto verdicts = stats.find("verdicts");
  if (verdicts != stats.end()) {
    const Table table = VerdictTable(*verdicts, context.options.verbose > 0);
    if (!table.empty()) out << table.Render(context.options.use_color, 2);
  }
  if (const Table tags = TagTable(stats); !tags.empty()) out << tags.Render(context.options.use_color, 2);
  out.flush();
}

int Stats(Context& context, const StatsArgs& args) {
  Json params = Json::object();
  if (!args.job.empty()) params["job"] = args.job;
  const bool repeats = args.interval_s > 0;
  const int rounds = args.count > 0 ? args.count : (repeats ? 0 : 1);
  Json before;
  auto before_time = steady_clock::now();
  for (int round = 0; rounds == 0 || round < rounds; ++round) {
    if (round > 0)
      std::this_thread::sleep_for(std::chrono::duration<double>(repeats ? args.interval_s : 1.0));
    const auto stats = context.Call("stats", params);
    if (!stats) return context.Fail(stats.error());
    const auto now = steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - before_time).count();
    if (context.options.json)
      context.PrintJson(*stats);
    else
      PrintStats(context, round == 0 ? *stats : RatesOf(*stats, before, seconds), round > 0);
    before = *stats;
    before_time = now;
  }
  return kExitOk;
}

}  // namespace

Table VerdictTable(const Json& verdicts, bool with_zero) {
  Table table({"VERDICT", "COUNT", "ACTION", "MEANING"});
  table.AlignRight(1);
  if (!verdicts.is_object()) return table;
  std::vector<std::pair<std::string, const Json*>> rows;
  for (const auto& [name, verdict] : verdicts.items()) {
    if (with_zero || CountOf(verdict) > 0) rows.emplace_back(name, &verdict);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return CountOf(*a.second) > CountOf(*b.second); });
  for (const auto& [name, verdict] : rows) {
    table.Add({name, fmt::format("{}", CountOf(*verdict)), Text(*verdict, "action"), Text(*verdict, "help")});
  }
  return table;
}

void AddStats(CLI::App& app, Context& context) {
  auto args = std::make_shared<StatsArgs>();
  CLI::App* stats = app.add_subcommand("stats", "counters of what the kernel did with packets");
  CLI::Option* job = stats->add_option("JOB", args->job, "only this job");
  CLI::Option* interval = stats
      ->add_option("-i,--interval", args->interval_s,
                   "repeat every so many seconds; a human sees rates from the second line on")
      ->check(CLI::PositiveNumber);
  CLI::Option* count = stats->add_option("-c,--count", args->count, "stop after so many lines")->check(CLI::PositiveNumber);
  CLI::Option* levels = stats->add_flag("--levels", args->levels, "the job's trees from the ranks to the root: packets in and out, reduction, resends, lag")
                            ->needs(job)->excludes(interval)->excludes(count);
  stats->add_option("--tree", args->tree, "this tree alone, with every child")->needs(levels)->check(CLI::NonNegativeNumber);
  stats->callback([&context, args] {
    context.action = [&context, args] { return args->levels ? ShowLevels(context, args->job, args->tree) : Stats(context, *args); };
  });
}

}  // namespace mlnet::ctl
