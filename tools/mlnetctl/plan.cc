// SPDX-License-Identifier: Apache-2.0
// mlnetctl plan: what the planner makes of the cluster that mlnetd knows, or of a lab topology file.
// The file is that of mlnet-lab: tools/mlnet-lab/topology.example.yaml.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "mlnet-lab/perf_sizes.h"
#include "mlnet-lab/topology.h"
#include "mlnetctl/commands.h"
#include "plan/planner.h"
#include "plan/render.h"
#include "plan/site.h"

namespace mlnet::ctl {
namespace {

struct PlanArgs {
  std::string topology, bytes = "64M", wire = "int32", shape;
  std::string job;                 // of the daemon's: its ranks
  std::vector<std::string> hosts;  // of the daemon's: ranks on each
  int ranks_per_host = 1;
  int degree = 4;
  bool is_unicast = false, is_dot = false;
};

/// What the planner is asked.
struct Task {
  plan::Cluster cluster;
  plan::Job job;
  int mtu = 1500;
  std::optional<plan::Shape> shape;
};

plan::Cluster ClusterOf(const lab::Topology& topology) {
  const auto bps = [](uint64_t rate) { return static_cast<double>(rate); };
  plan::Cluster cluster;
  cluster.oversubscription = topology.oversubscription;
  for (const lab::Host& host : topology.hosts) cluster.hosts.push_back({host.name, host.rack, bps(host.rate_bps), bps(host.rate_bps)});
  for (const lab::Rack& rack : topology.racks) cluster.racks.push_back({rack.name, bps(rack.up_bps.value_or(0)), bps(rack.down_bps.value_or(0))});
  return cluster;
}

// Everything but the ranks.
Result<plan::Job> JobOf(const PlanArgs& args) {
  const auto sizes = lab::ParseSizes(args.bytes);
  if (!sizes || sizes->size() != 1)
    return Err(ErrorCode::kInvalidArgument, fmt::format("--bytes: '{}' is no size", args.bytes), "write 64M");
  plan::Job job;
  job.bytes = sizes->front();
  job.lane_bits = args.wire == "int8" ? 8 : args.wire == "int16" ? 16 : 32;
  job.multicast = !args.is_unicast;
  return job;
}

Result<Task> ReadTask(const PlanArgs& args) {
  const auto topology = lab::LoadTopology(args.topology);
  if (!topology) return tl::make_unexpected(topology.error());
  auto job = JobOf(args);
  if (!job) return tl::make_unexpected(job.error());
  std::vector<std::string> workers;
  for (const lab::Host& host : lab::WorkersOf(*topology)) workers.push_back(host.name);
  job->host_of_rank = plan::PlaceInOrder(workers, static_cast<size_t>(args.ranks_per_host));
  return Task{ClusterOf(*topology), std::move(*job), static_cast<int>(topology->mtu), plan::ShapeFromName(args.shape)};
}

// mlnetd says what it would tell the planner; what the planner makes of that is the same here.
Result<Task> AskDaemon(Context& context, const PlanArgs& args) {
  auto job = JobOf(args);
  if (!job) return tl::make_unexpected(job.error());
  Json params = {{"job", args.job}, {"hosts", args.hosts}, {"ranks_per_host", args.ranks_per_host}, {"shape", args.shape}};
  const auto answer = context.Call("plan", params);
  if (!answer) return tl::make_unexpected(answer.error());
  try {
    Task task;
    for (const Json& host : answer->at("hosts")) {
      const double rate = host.at("rate_bps");
      task.cluster.hosts.push_back({host.at("name"), host.at("rack"), rate, rate, host.at("can_aggregate")});
    }
    task.cluster.oversubscription = answer->at("oversubscription");
    job->host_of_rank = answer->at("host_of_rank").get<std::vector<std::string>>();
    job->multicast = job->multicast && answer->at("multicast").get<bool>();
    task.job = std::move(*job);
    task.mtu = answer->at("mtu");
    if (!answer->at("has_rates").get<bool>()) {
      context.Say("The rates of the links are not known: as if each had 10 Gb/s. Set [[iface]] rate in mlnetd.toml.");
    }
    if (answer->at("shape").is_string()) task.shape = plan::ShapeFromName(answer->at("shape"));
    return task;
  } catch (const Json::exception& e) {
    return Err(ErrorCode::kMismatch, fmt::format("mlnetd's answer is not understood: {}", e.what()), "is mlnetctl older than mlnetd?");
  }
}

int ShowPlan(Context& context, const PlanArgs& args) {
  const auto task = args.topology.empty() ? AskDaemon(context, args) : ReadTask(args);
  if (!task) return context.Fail(task.error());
  plan::Settings settings;
  settings.degree = static_cast<size_t>(args.degree);
  plan::FitToMtu(settings, task->mtu);
  const auto made = plan::MakePlan(task->cluster, task->job, settings, task->shape);
  if (!made) return context.Fail(made.error());
  if (args.is_dot) {
    context.out() << plan::RenderDot(*made, task->cluster, task->job);
  } else if (context.options.json) {
    context.PrintJson(plan::RenderJson(*made, task->cluster, task->job));
  } else {
    context.out() << plan::RenderText(*made);
  }
  return kExitOk;
}

}  // namespace

void AddPlan(CLI::App& app, Context& context) {
  auto args = std::make_shared<PlanArgs>();
  CLI::App* command = app.add_subcommand("plan", "predict what trees a job would get on a cluster, and why");
  auto* job = command->add_option("--job", args->job, "for the ranks of this job of mlnetd's");
  auto* hosts = command->add_option("--hosts", args->hosts, "for ranks on these hosts of mlnetd's: w1,w2 (default: all that do not only sum)")
                    ->delimiter(',');
  command->add_option("--topology", args->topology, "for a topology file of mlnet-lab instead, without mlnetd; may name racks and core")
      ->excludes(job)
      ->excludes(hosts);
  job->excludes(hosts);
  command->add_option("--bytes", args->bytes, "size of the float32 tensor: 64M, 4096")->capture_default_str();
  command->add_option("--wire", args->wire, "int32, int16 or int8")
      ->check(CLI::IsMember({"int32", "int16", "int8"}))
      ->capture_default_str();
  command->add_option("--ranks-per-host", args->ranks_per_host, "ranks on each worker host")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--shape", args->shape, "take this shape instead of the fastest")
      ->check(CLI::IsMember(plan::ShapeNames()));
  command->add_option("--degree", args->degree, "children per node of shape degree")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_flag("--unicast", args->is_unicast, "the network carries no multicast");
  command->add_flag("--dot", args->is_dot, "print the chosen trees for Graphviz");
  command->callback([&context, args] { context.action = [&context, args] { return ShowPlan(context, *args); }; });
}

}  // namespace mlnet::ctl
