// SPDX-License-Identifier: Apache-2.0
// mlnetctl trace: a timeline of what a job does, while it does it.
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "base/read_file.h"
#include "mlnetctl/commands.h"
#include "mlnetctl/timeline.h"
#include "rpc/message.h"

namespace mlnet::ctl {
namespace {

constexpr std::chrono::milliseconds kPollEvery{50};

struct TraceArgs {
  std::string name;
  double seconds = 2;
  std::string file = "trace.json";
  std::vector<std::string> add;
};

Result<Json> ReadJson(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text) return Err(ErrorCode::kInvalidArgument, text.error().message);
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Err(ErrorCode::kInvalidArgument, path + " is not JSON");
  return json;
}

Result<Json> Record(Context& context, const TraceArgs& args) {
  auto host = context.Call("trace.begin", {{"name", args.name}, {"ms", static_cast<uint64_t>(args.seconds * 1000)}});
  if (!host) return host;
  context.Say(fmt::format("recording job {} on host {} for {:g} s", args.name, Text(*host, "host"), args.seconds));
  (*host)["rows"] = Json::array();
  for (;;) {
    auto some = context.Call("trace.take", {{"name", args.name}});
    if (!some) return some;
    for (Json& row : (*some)["rows"]) (*host)["rows"].push_back(std::move(row));
    (*host)["lost"] = (*some)["lost"];
    if ((*some)["is_over"] == true) return host;
    if ((*some)["rows"].empty()) std::this_thread::sleep_for(kPollEvery);
  }
}

Json SummaryOf(const Timeline& timeline, const std::string& file) {
  Json hosts = Json::array();
  for (const Json& host : timeline.hosts) {
    size_t collectives = 0, sums = 0;
    for (const Json& row : host["rows"]) {
      if (row.contains("rank")) ++collectives;
      else sums += row.value("packets", size_t{0});
    }
    hosts.push_back({{"host", host.value("host", "")}, {"job", host.value("name", "")}, {"collectives", collectives}, {"sums", sums},
                     {"lost", host.value("lost", 0)}});
  }
  return {{"schema", "mlnet.trace.summary/1"}, {"file", file}, {"hosts", std::move(hosts)}, {"others", timeline.others.size()}};
}

int PrintSummary(Context& context, const Json& summary) {
  if (context.options.json) {
    context.PrintJson(summary);
    return kExitOk;
  }
  for (const Json& host : Items(summary, "hosts")) {
    context.out() << fmt::format("{}: {} collectives of its ranks, {} packets summed in its kernel\n", Text(host, "host"),
                                 Text(host, "collectives"), Text(host, "sums"));
    if (host.value("lost", 0) > 0) context.Say("  " + Text(host, "lost") + " rows did not fit any more: record for a shorter time");
  }
  context.out() << Text(summary, "file") << ": open it in https://ui.perfetto.dev or chrome://tracing\n";
  return kExitOk;
}

int RunTrace(Context& context, const TraceArgs& args) {
  Timeline timeline;
  if (args.name.empty() && args.add.empty()) {
    return context.Fail({ErrorCode::kInvalidArgument, "there is nothing to draw", "name a job, or files with --add"});
  }
  std::vector<Json> files;  // read first: what is wrong with them shows at once
  for (const std::string& path : args.add) {
    auto json = ReadJson(path);
    if (!json) return context.Fail(json.error());
    files.push_back(std::move(*json));
  }
  if (!args.name.empty()) {
    auto host = Record(context, args);
    if (!host) return context.Fail(host.error());
    timeline.hosts.push_back(std::move(*host));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    if (auto ok = AddToTimeline(timeline, files[i]); !ok) {
      return context.Fail({ok.error().code, args.add[i] + ": " + ok.error().message, ok.error().hint});
    }
  }
  std::ofstream out(args.file);
  out << rpc::Dump(RenderTimeline(timeline)) << "\n";
  out.close();
  if (!out) return context.Fail({ErrorCode::kSystem, "cannot write " + args.file, "name another file with -o"});
  return PrintSummary(context, SummaryOf(timeline, args.file));
}

}  // namespace

void AddTrace(CLI::App& app, Context& context) {
  auto args = std::make_shared<TraceArgs>();
  CLI::App* trace = app.add_subcommand("trace", "a timeline of a running job, for Perfetto: each collective of this host's ranks from the call to "
                                                "its result, and when this host's kernel summed it");
  trace->add_option("NAME", args->name, "job; without one, only files are put together");
  trace->add_option("--seconds", args->seconds, "to record for")->check(CLI::Range(0.001, 60.0))->default_str("2");
  trace->add_option("-o,--output", args->file, "file to write")->default_str("trace.json");
  trace->add_option("--add", args->add, "timelines to lay over it: of other hosts, or saved by mlnet.trace.save");
  trace->callback([&context, args] { context.action = [&context, args] { return RunTrace(context, *args); }; });
}

}  // namespace mlnet::ctl
