// SPDX-License-Identifier: Apache-2.0
// mlnetctl plan: what the planner makes of the cluster that mlnetd knows, or of a lab topology file.
// The file is that of mlnet-lab: tools/mlnet-lab/topology.example.yaml.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <memory>
#include <optional>

#include "mlnet-lab/perf_sizes.h"
#include "mlnet-lab/units.h"
#include "mlnet-lab/yaml_keys.h"
#include "mlnetctl/commands.h"
#include "plan/planner.h"
#include "plan/render.h"
#include "plan/site.h"

namespace mlnet::ctl {
namespace {

using lab::CheckKeys;

struct PlanArgs {
  std::string topology, bytes = "64M", wire = "int32", shape;
  std::string job;                 // of the daemon's: its ranks
  std::vector<std::string> hosts;  // of the daemon's: ranks on each
  int ranks_per_host = 1;
  int degree = 4;
  bool is_unicast = false, is_dot = false;
};

struct TopologyFile {
  plan::Cluster cluster;
  std::vector<std::string> worker_hosts;
  int mtu = 1500;
};

Result<void> ReadRate(const YAML::Node& node, const char* key, const std::string& where, double& into) {
  if (!node || !node[key]) return {};
  const auto rate = lab::ParseRate(node[key].as<std::string>());
  if (!rate) {
    return Err(rate.error().code, fmt::format("{}.{}: {}", where, key, rate.error().message), rate.error().hint);
  }
  into = static_cast<double>(*rate);
  return {};
}

Result<void> ReadHost(const YAML::Node& node, const YAML::Node& defaults, const std::string& where,
                      TopologyFile& file) {
  if (auto ok = CheckKeys(node, where, {"name", "role", "rate", "rack", "faults"}); !ok) return ok;
  if (!node["name"]) return Err(ErrorCode::kInvalidArgument, where + ": name is missing");
  plan::Host host;
  host.name = node["name"].as<std::string>();
  host.rack = node["rack"].as<std::string>("");
  double rate = 0;
  if (auto ok = ReadRate(defaults, "rate", "defaults", rate); !ok) return ok;
  if (auto ok = ReadRate(node, "rate", where, rate); !ok) return ok;
  host.up_bps = host.down_bps = rate;
  const auto role = node["role"].as<std::string>("worker");
  if (role != "worker" && role != "aggregator") {
    return Err(ErrorCode::kInvalidArgument, fmt::format("{}.role: '{}' is not a role", where, role),
               "roles are worker and aggregator");
  }
  if (role == "worker") file.worker_hosts.push_back(host.name);
  file.cluster.hosts.push_back(std::move(host));
  return {};
}

Result<void> ReadRack(const YAML::Node& node, const std::string& where, TopologyFile& file) {
  if (auto ok = CheckKeys(node, where, {"name", "rate", "up", "down", "faults"}); !ok) return ok;
  if (!node["name"]) return Err(ErrorCode::kInvalidArgument, where + ": name is missing");
  plan::Rack rack;
  rack.name = node["name"].as<std::string>();
  if (auto ok = ReadRate(node, "rate", where, rack.up_bps); !ok) return ok;
  rack.down_bps = rack.up_bps;
  if (auto ok = ReadRate(node, "up", where, rack.up_bps); !ok) return ok;
  if (auto ok = ReadRate(node, "down", where, rack.down_bps); !ok) return ok;
  file.cluster.racks.push_back(std::move(rack));
  return {};
}

Result<TopologyFile> ReadTopology(const YAML::Node& root) {
  TopologyFile file;
  if (auto ok = CheckKeys(root, "topology",
                          {"version", "name", "mtu", "seed", "ipv6", "switch", "defaults", "hosts", "racks", "core"});
      !ok) {
    return tl::make_unexpected(ok.error());
  }
  if (root["version"].as<int>(1) != 1) return Err(ErrorCode::kInvalidArgument, "topology.version must be 1");
  file.mtu = root["mtu"].as<int>(1500);
  if (!root["hosts"] || !root["hosts"].IsSequence())
    return Err(ErrorCode::kInvalidArgument, "topology.hosts must be a list of hosts");
  for (size_t i = 0; i < root["hosts"].size(); ++i) {
    auto ok = ReadHost(root["hosts"][i], root["defaults"], fmt::format("hosts[{}]", i), file);
    if (!ok) return tl::make_unexpected(ok.error());
  }
  const YAML::Node racks = root["racks"];
  if (racks && !racks.IsSequence())
    return Err(ErrorCode::kInvalidArgument, "topology.racks must be a list of racks");
  for (size_t i = 0; racks && i < racks.size(); ++i) {
    if (auto ok = ReadRack(racks[i], fmt::format("racks[{}]", i), file); !ok)
      return tl::make_unexpected(ok.error());
  }
  if (root["core"]) {
    if (auto ok = CheckKeys(root["core"], "core", {"oversubscription"}); !ok) return tl::make_unexpected(ok.error());
    file.cluster.oversubscription = root["core"]["oversubscription"].as<double>(0);
  }
  return file;
}

Result<TopologyFile> LoadTopology(const std::string& path) {
  // yaml-cpp reports by exceptions; they end here.
  try {
    auto file = ReadTopology(YAML::LoadFile(path));
    if (file) return file;
    return Err(file.error().code, fmt::format("{}: {}", path, file.error().message), file.error().hint);
  } catch (const YAML::BadFile&) {
    return Err(ErrorCode::kInvalidArgument, fmt::format("cannot read topology file {}", path));
  } catch (const YAML::Exception& e) {
    return Err(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, e.what()));
  }
}

/// What the planner is asked.
struct Task {
  plan::Cluster cluster;
  plan::Job job;
  int mtu = 1500;
  std::optional<plan::Shape> shape;
};

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
  auto file = LoadTopology(args.topology);
  if (!file) return tl::make_unexpected(file.error());
  auto job = JobOf(args);
  if (!job) return tl::make_unexpected(job.error());
  job->host_of_rank = plan::PlaceInOrder(file->worker_hosts, static_cast<size_t>(args.ranks_per_host));
  return Task{std::move(file->cluster), std::move(*job), file->mtu, plan::ShapeFromName(args.shape)};
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
