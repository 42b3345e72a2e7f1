// SPDX-License-Identifier: Apache-2.0
// mlnetctl top: what all jobs do at this moment. Rates are differences of two answers of the daemon.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <thread>

#include "mlnetctl/commands.h"
#include "mlnetctl/screen.h"

namespace mlnet::ctl {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct TopArgs {
  double interval_s = 2;
  int count = 0;  // 0: for ever
  bool all = false;
};

struct Sample {
  Json top;
  steady_clock::time_point time;
};

const Json* Find(const Json& top, const std::string& job) {
  for (const Json& row : Items(top, "jobs")) {
    if (Text(row, "name") == job) return &row;
  }
  return nullptr;
}

/// A job's row as it is shown; without an earlier one, or with one of another life of the name, the rates are unknown.
std::vector<std::string> RowOf(const Json& now, const Json* before, double seconds) {
  const bool is_known = before != nullptr && Number(*before, "incarnation") == Number(now, "incarnation");
  const auto grown = [&](const char* key) {
    const uint64_t later = Number(now, key), earlier = is_known ? Number(*before, key) : later;
    return later >= earlier ? static_cast<double>(later - earlier) : 0.0;
  };
  const auto rate = [&](const char* key, double factor, int digits) {
    return is_known ? fmt::format("{:.{}f}", factor * grown(key) / seconds, digits) : "-";
  };
  const double out = grown("packets_out");
  std::string slowest = "-";
  if (const auto it = now.find("slowest"); it != now.end() && it->is_object()) {
    slowest = fmt::format("{} at {}, {:.0f} us", Text(*it, "child"), Text(*it, "at"), rpc::GetOr<double>(*it, "lag_us", 0).value_or(0));
  }
  return {Text(now, "name"),
          Text(now, "state"),
          fmt::format("{}/{}", Text(now, "joined"), Text(now, "world_size")),
          rate("bytes_summed", 8e-9, 3),
          rate("packets_in", 1, 0),
          rate("packets_out", 1, 0),
          out > 0 ? fmt::format("{:.2f}", grown("packets_in") / out) : "-",
          rate("resends", 1, 1),
          slowest};
}

std::string PageOf(const Context& context, const Sample& now, const std::optional<Sample>& before) {
  const double seconds = before ? std::chrono::duration<double>(now.time - before->time).count() : 0;
  Table table({"JOB", "STATE", "RANKS", "SUMMED Gb/s", "IN/s", "OUT/s", "REDUCTION", "RESENDS/s", "SLOWEST CHILD"});
  for (size_t column : {2, 3, 4, 5, 6, 7}) table.AlignRight(column);
  for (const Json& row : Items(now.top, "jobs")) {
    const Json* earlier = before ? Find(before->top, Text(row, "name")) : nullptr;
    table.Add(RowOf(row, earlier, seconds));
    table.PaintLast(1, ToneOfState(Text(row, "state")));
  }
  if (table.empty()) return "no jobs; a job appears when its first rank joins\n";
  return table.Render(context.options.use_color);
}

int Top(Context& context, const TopArgs& args) {
  const Json params = {{"all", args.all}};
  const bool is_live = context.options.is_terminal && !context.options.json && args.count != 1;
  const milliseconds interval(static_cast<int64_t>(args.interval_s * 1000));
  std::optional<Screen> screen;
  std::optional<Sample> before;
  // For lines of text the first sample is only what the rates of the next one are differences to.
  const bool has_rates_only = !is_live && !context.options.json;
  for (int round = has_rates_only ? 0 : 1; args.count == 0 || round <= args.count; ++round) {
    auto top = context.Call("top", params);
    if (!top) {
      screen.reset();
      return context.Fail(top.error());
    }
    Sample now{std::move(*top), steady_clock::now()};
    if (is_live) {
      if (!screen) screen.emplace(context.out());
      screen->Show(PageOf(context, now, before) + "\nq: leave\n");
    } else if (context.options.json) {
      context.PrintJson(now.top);
    } else if (round > 0) {
      context.out() << PageOf(context, now, before) << std::flush;
    }
    before = std::move(now);
    if (args.count != 0 && round == args.count) break;
    if (!screen) std::this_thread::sleep_for(interval);
    else if (!screen->Wait(interval)) break;
  }
  return kExitOk;
}

}  // namespace

void AddTop(CLI::App& app, Context& context) {
  auto args = std::make_shared<TopArgs>();
  CLI::App* top = app.add_subcommand("top", "all jobs, with rates, again and again; q or Ctrl-C ends it");
  top->add_option("-i,--interval", args->interval_s, "seconds between two looks (default 2)")->check(CLI::Range(0.01, 3600.0));
  top->add_option("-n,--count", args->count, "stop after so many looks; 1 prints once")->check(CLI::PositiveNumber);
  top->add_flag("-a,--all", args->all, "jobs that have ended, too");
  top->callback([&context, args] { context.action = [&context, args] { return Top(context, *args); }; });
}

}  // namespace mlnet::ctl
