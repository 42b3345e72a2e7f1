// SPDX-License-Identifier: Apache-2.0
// mlnetctl job: jobs, their members and counters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <memory>
#include <optional>

#include "mlnet/limits.h"
#include "mlnetctl/commands.h"
#include "plan/planner.h"

namespace mlnet::ctl {
namespace {

struct CreateArgs {
  std::string name;
  int world_size = 0;
  std::optional<int> slots, classes, timeout_ms, deadline_ms, rto_min_us, rto_max_us, weight, ceiling, lost_ms;
  std::optional<uint64_t> work_bytes;
  std::string multicast;
  std::string shape;
  std::string order;
  std::string root;
  std::string require_mode;
  bool mac = false;
};

struct JobChange {
  std::string name;
  std::vector<std::string> pairs;
};

std::string Ranks(const Json& job) {
  return fmt::format("{}/{}", Text(job, "joined"), Text(job, "world_size"));
}

std::string LineOf(const Json& job) {
  std::string text =
      fmt::format("job {}: {}, {} ranks joined", Text(job, "name"), Text(job, "state"), Ranks(job));
  if (const std::string reason = Text(job, "reason"); reason != "-") text += ": " + reason;
  return text;
}

int Create(Context& context, const CreateArgs& args) {
  Json params = {{"name", args.name}, {"world_size", args.world_size}};
  const auto set = [&](const char* key, const std::optional<int>& value) {
    if (value) params[key] = *value;
  };
  set("slots", args.slots);
  set("classes", args.classes);
  set("timeout_ms", args.timeout_ms);
  set("deadline_ms", args.deadline_ms);
  set("rto_min_us", args.rto_min_us);
  set("rto_max_us", args.rto_max_us);
  set("weight", args.weight);
  set("ceiling", args.ceiling);
  set("lost_ms", args.lost_ms);
  if (args.work_bytes) params["work_bytes"] = *args.work_bytes;
  if (!args.order.empty()) params["order"] = args.order;
  if (!args.multicast.empty()) params["multicast"] = args.multicast;
  if (!args.shape.empty()) params["shape"] = args.shape;
  if (!args.root.empty()) params["root"] = args.root;
  if (!args.require_mode.empty()) params["require_mode"] = args.require_mode;
  if (args.mac) params["mac"] = true;
  const auto result = context.Call("job.create", params);
  if (!result) return context.Fail(result.error());
  if (context.options.json) context.PrintJson(*result);
  context.Say(LineOf(*result));
  return kExitOk;
}

// What is all digits is a number, true and false are what they say; the daemon knows the keys.
Json ValueOf(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  uint64_t number = 0;
  const auto [stop, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  return ec == std::errc() && stop == text.data() + text.size() ? Json(number) : Json(text);
}

int SetJob(Context& context, const JobChange& args) {
  Json params = {{"name", args.name}};
  for (const std::string& pair : args.pairs) {
    const size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == pair.size()) {
      return context.Fail(Error{ErrorCode::kInvalidArgument, "'" + pair + "' is not KEY=VALUE", "mlnetctl job set NAME weight=2"});
    }
    params[pair.substr(0, equals)] = ValueOf(pair.substr(equals + 1));
  }
  const auto result = context.Call("job.set", params);
  if (!result) return context.Fail(result.error());
  if (context.options.json) context.PrintJson(*result);
  context.Say(fmt::format("job {}: {}", args.name, fmt::join(args.pairs, " ")));
  return kExitOk;
}

int ListJobs(Context& context) {
  const auto result = context.Call("job.list");
  if (!result) return context.Fail(result.error());
  if (context.options.json) {
    context.PrintJson(*result);
    return kExitOk;
  }
  const Table table = JobTable(Items(*result, "jobs"));
  if (table.empty()) {
    context.Say("no jobs; a job appears when its first rank joins");
    return kExitOk;
  }
  context.out() << table.Render(context.options.use_color);
  return kExitOk;
}

/// "multicast" or "unicast (why)", however the daemon wraps it.
std::string Fan(const Json& job) {
  const auto it = job.find("fan");
  if (it == job.end()) return "-";
  if (!it->is_object()) return Text(job, "fan");
  const std::string why = Text(*it, "why");
  return Text(*it, "kind") + (why == "-" ? "" : fmt::format(" ({})", why));
}

/// How far a rank's packets arrive behind the first one of their set, on average; "-" where nothing is known.
std::string LagOf(const Json& job, const Json& member) {
  for (const Json& lag : Items(job, "lag")) {
    if (Text(lag, "rank") != Text(member, "rank")) continue;
    const auto mean_us = rpc::Find<double>(lag, "mean_us");
    return mean_us && *mean_us ? fmt::format("{:.1f}", **mean_us) : "-";
  }
  return "-";
}

/// What the job has of links that it shares with others.
std::string TurnOf(const Json& job) {
  const Json spec = job.value("spec", Json::object()), progress = job.value("progress", Json::object());
  std::string text = fmt::format("order {}, weight {}, ceiling {}", Text(spec, "order"), Text(spec, "weight"), Text(spec, "ceiling"));
  if (progress.value("is_moving", false) && spec.value("order", "") == "shortest") {
    text += progress.value("is_in_front", false) ? ", in front" : ", waits for another job";
  }
  const auto work = progress.value("work_bytes", uint64_t{0}), done = progress.value("done_bytes", uint64_t{0});
  if (work != 0) text += fmt::format(", {:.0f} MB of {:.0f} done", static_cast<double>(done) / 1e6, static_cast<double>(work) / 1e6);
  return text;
}

Table MemberTable(const Json& job) {
  Table table({"RANK", "HOST", "ADDRESS", "PID", "JOINED", "READY", "SENT", "RESENT", "IN KERNEL",
               "IN USER SPACE", "RTT us", "LAG us"});
  for (size_t column : {0, 6, 7, 8, 9, 10, 11}) table.AlignRight(column);
  for (const Json& member : Items(job, "members")) {
    const auto it = member.find("stats");
    const Json stats = it != member.end() ? *it : Json::object();
    table.Add({Text(member, "rank"), Text(member, "host"), Text(member, "address"), Text(member, "pid"),
               Text(member, "joined"), Text(member, "ready"), Text(stats, "packets_sent"),
               Text(stats, "retransmits"), Text(stats, "summed_in_kernel"),
               Text(stats, "summed_in_user_space"), Text(stats, "rtt_us"), LagOf(job, member)});
    if (Text(member, "joined") == "no") table.PaintLast(4, Tone::kWarn);
  }
  return table;
}

int ShowJob(Context& context, const std::string& name) {
  const auto result = context.Call("job.show", {{"name", name}});
  if (!result) return context.Fail(result.error());
  if (context.options.json) {
    context.PrintJson(*result);
    return kExitOk;
  }
  const Json& job = *result;
  const bool color = context.options.use_color;
  const std::string state = Text(job, "state");
  auto& out = context.out();
  out << "job " << Paint(Text(job, "name"), Tone::kBold, color) << ": "
      << Paint(state, ToneOfState(state), color)
      << fmt::format(", id {}, epoch {}, {} ranks joined\n", Text(job, "id"), Text(job, "epoch"), Ranks(job));
  if (Text(job, "reason") != "-") out << "  reason      " << Text(job, "reason") << "\n";
  if (const auto shrunk = job.find("shrunk"); shrunk != job.end() && shrunk->is_object()) {
    out << "  goes on     without ranks that were lost: " << Text(*shrunk, "why") << "\n";
  }
  if (Text(job, "hint") != "-") out << "  try         " << Text(job, "hint") << "\n";
  out << "  aggregator  " << Text(job, "aggregator") << "\n";
  if (const auto shape = job.find("shape"); shape != job.end() && !Text(*shape, "name").empty()) {
    out << "  shape       " << Text(*shape, "name") << ": " << Text(*shape, "why") << "\n";
  }
  if (Text(job, "mode") == "ring") out << "  mode        ring of ranks, in user space: " << Text(job, "mode_why") << "\n";
  else out << "  results by  " << Fan(job) << "\n";
  if (job.contains("spec")) out << "  links       " << TurnOf(job) << "\n";
  if (job.contains("spec") && job["spec"].value("mac", false)) out << "  packets     carry tags made with the job's key\n";
  for (const Json& pool : Items(job, "pools")) {
    out << fmt::format("  pool        class {} stream {}: {} slots\n", Text(pool, "class"),
                       Text(pool, "stream"), 1ULL << rpc::GetOr<uint32_t>(pool, "log2_slots", 0).value_or(0));
  }
  if (const Table members = MemberTable(job); !members.empty()) out << "\n" << members.Render(color);
  const auto counters = job.find("counters");
  if (counters != job.end()) {
    const Table table = VerdictTable(*counters, context.options.verbose > 0);
    if (!table.empty()) out << "\n" << table.Render(color);
  }
  return kExitOk;
}

int Delete(Context& context, const std::string& name) {
  const auto result = context.Call("job.delete", {{"name", name}});
  if (!result) return context.Fail(result.error());
  if (context.options.json) context.PrintJson(*result);
  context.Say(fmt::format("job {}: deleted", name));
  return kExitOk;
}

void AddCreate(CLI::App& job, Context& context) {
  auto args = std::make_shared<CreateArgs>();
  std::vector<std::string> shapes = plan::ShapeNames();
  shapes.insert(shapes.begin(), "auto");
  CLI::App* create = job.add_subcommand("create", "declare a job before its ranks join");
  create->add_option("NAME", args->name, "rendezvous name of the job")->required();
  create->add_option("-n,--world-size", args->world_size, "number of ranks")
      ->required()
      ->check(CLI::Range(1, kRanksMax));
  create->add_option("--slots", args->slots, "slots per pool, a power of two")->check(CLI::PositiveNumber);
  create->add_option("--classes", args->classes, "traffic classes")->check(CLI::Range(1, 8));
  create->add_option("--multicast", args->multicast, "auto, on or off")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  create->add_option("--shape", args->shape, "who sums: auto, or one that mlnetctl plan shows")
      ->check(CLI::IsMember(shapes));
  create->add_option("--root", args->root, "reflect, or server: one process joins as the server, for pushes and pulls")
      ->check(CLI::IsMember({"reflect", "server"}));
  create->add_option("--timeout-ms", args->timeout_ms, "deadline of joins and collectives")
      ->check(CLI::PositiveNumber);
  create->add_option("--deadline-ms", args->deadline_ms, "straggler deadline of a packet")
      ->check(CLI::PositiveNumber);
  create->add_option("--rto-min-us", args->rto_min_us, "shortest retransmission timer")
      ->check(CLI::PositiveNumber);
  create->add_option("--rto-max-us", args->rto_max_us, "longest retransmission timer; two round trips where those take longer, up to 5 times this")
      ->check(CLI::PositiveNumber);
  create->add_option("--lost-ms", args->lost_ms, "a rank or host not heard of for so long is lost; 0: only a timeout tells")->check(CLI::NonNegativeNumber);
  create->add_option("--weight", args->weight, "share of the links where jobs meet")->check(CLI::Range(1, 100));
  create->add_option("--ceiling", args->ceiling, "traffic classes above this one are marked like it")->check(CLI::Range(0, 7));
  create->add_flag("--mac", args->mac, "all packets carry a tag made with a key of the job, which the kernel checks at every hop");
  create->add_option("--order", args->order, "fair, or shortest: jobs in turn, least left to transfer first")
      ->check(CLI::IsMember({"fair", "shortest"}));
  create->add_option("--require-mode", args->require_mode, "kernel: the job fails when it finds or loses a host to sum it; any: its ranks sum in user space then")
      ->check(CLI::IsMember({"any", "kernel"}));
  create->add_option("--work-bytes", args->work_bytes, "what each rank transfers in all");
  create->callback(
      [&context, args] { context.action = [&context, args] { return Create(context, *args); }; });
}

}  // namespace

Tone ToneOfState(const std::string& state) {
  if (state == "ready") return Tone::kGood;
  if (state == "failed") return Tone::kBad;
  return Tone::kWarn;
}

Table JobTable(const Json& jobs) {
  Table table({"JOB", "ID", "EPOCH", "STATE", "RANKS", "AGGREGATOR", "REASON"});
  for (const Json& job : jobs) {
    const std::string state = Text(job, "state");
    table.Add({Text(job, "name"), Text(job, "id"), Text(job, "epoch"), state, Ranks(job),
               Text(job, "aggregator"), Text(job, "reason") == "-" ? "" : Text(job, "reason")});
    table.PaintLast(3, ToneOfState(state));
  }
  return table;
}

void AddJob(CLI::App& app, Context& context) {
  CLI::App* job = app.add_subcommand("job", "create, list, show, set and delete jobs")->require_subcommand(1);
  AddCreate(*job, context);

  CLI::App* list = job->add_subcommand("list", "jobs of this host");
  list->callback([&context] { context.action = [&context] { return ListJobs(context); }; });

  auto changed = std::make_shared<JobChange>();
  CLI::App* set = job->add_subcommand("set", "change a job while it runs: weight, order, ceiling, lost_ms, require_mode, work_bytes, rto_min_us, rto_max_us");
  set->add_option("NAME", changed->name, "job")->required();
  set->add_option("KEY=VALUE", changed->pairs, "such as weight=2")->required();
  set->callback([&context, changed] { context.action = [&context, changed] { return SetJob(context, *changed); }; });

  auto shown = std::make_shared<std::string>();
  CLI::App* show = job->add_subcommand("show", "members, pools and counters of a job");
  show->add_option("NAME", *shown, "job")->required();
  show->callback([&context, shown] { context.action = [&context, shown] { return ShowJob(context, *shown); }; });

  auto deleted = std::make_shared<std::string>();
  CLI::App* remove = job->add_subcommand("delete", "end a job on all hosts; its ranks get an error");
  remove->add_option("NAME", *deleted, "job")->required();
  remove->callback(
      [&context, deleted] { context.action = [&context, deleted] { return Delete(context, *deleted); }; });
}

}  // namespace mlnet::ctl
