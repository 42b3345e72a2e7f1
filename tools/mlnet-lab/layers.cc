// SPDX-License-Identifier: Apache-2.0
// mlnet-lab layers: iterations of a recorded training over the lab's links, once for each policy of the scheduler, the
// policies taking turns, against the best that any schedule could do at the rate that is measured in between.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "layers_report.h"
#include "measurement.h"
#include "mlnet-perf/layers_files.h"
#include "perf_sizes.h"
#include "perf_traffic.h"
#include "perf_turn.h"

namespace mlnet::lab {
namespace {

constexpr int kLayerClasses = 8;
constexpr int kRateCalls = 3;        // before all turns
constexpr int kRateCallsOfTurn = 1;  // in each

struct LayersOptions {
  std::string trace = "vgg19";
  std::vector<std::string> policies = perf::PolicyNames();
  double scale = 1;
  int iterations = 5;
  int warmup = 1;
  int rounds = 3;
  std::string partition;
  std::string credit;
  int ranks_per_host = 1;
  int timeout_s = 300;
  uint64_t seed = 1;
};

/// 0 where the option is not given.
Result<uint64_t> OneSize(const std::string& text, const char* option) {
  if (text.empty()) return 0;
  const auto sizes = ParseSizes(text);
  if (!sizes) return tl::make_unexpected(sizes.error());
  if (sizes->size() != 1) return Err(ErrorCode::kInvalidArgument, fmt::format("{} is one size", option));
  return sizes->front();
}

/// A file, or the name of one that came with this program.
Result<perf::Trace> FindTrace(const std::string& name) {
  std::error_code error;
  if (std::filesystem::exists(name, error)) return perf::LoadTrace(name);
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto file = self.parent_path().parent_path() / "share/mlnet/traces" / (name + ".json");
  if (!error && std::filesystem::exists(file, error)) return perf::LoadTrace(file.string());
  return Err(ErrorCode::kUnavailable, fmt::format("there is no trace '{}'", name), "vgg19, resnet50, or a file");
}

class LayersRun {
 public:
  LayersRun(const Measurement& measurement, const LayersOptions& options, const std::atomic<bool>& stop)
      : measurement_(measurement), options_(options), stop_(stop) {}

  Result<LayersOutcome> Run() {
    const auto trace = FindTrace(options_.trace);
    if (!trace) return tl::make_unexpected(trace.error());
    outcome_.trace = perf::Scaled(*trace, options_.scale);
    outcome_.scale = options_.scale;
    outcome_.ranks = static_cast<int>(measurement_.workers.size()) * options_.ranks_per_host;
    for (const std::string& policy : options_.policies) outcome_.policies.emplace_back().policy = policy;
    if (auto ok = MeasureRate(); !ok) return tl::make_unexpected(ok.error());
    for (int round = 0; round < options_.rounds; ++round) {
      for (PolicyOutcome& policy : outcome_.policies) {
        if (auto ok = Play(policy); !ok) return tl::make_unexpected(ok.error());
      }
    }
    return outcome_;
  }

 private:
  // The first sum opens the window, and does not count.
  Result<void> MeasureRate() {
    perf::LayersPlan plan = perf::MakePlan(outcome_.trace, "fifo", {});
    plan.rate_calls = 1 + kRateCalls;
    PolicyOutcome ignored;
    std::vector<double> rates;
    if (auto ok = Turn(plan, "rate", ignored, rates); !ok) return ok;
    outcome_.rates.assign(rates.begin() + 1, rates.end());
    options_at_rate_.bytes_per_s = outcome_.BytesPerS();
    return {};
  }

  Result<void> Play(PolicyOutcome& policy) {
    const auto partition = OneSize(options_.partition, "--partition"), credit = OneSize(options_.credit, "--credit");
    if (!partition) return tl::make_unexpected(partition.error());
    if (!credit) return tl::make_unexpected(credit.error());
    perf::PolicyOptions at_rate = options_at_rate_;
    at_rate.partition_bytes = *partition;
    at_rate.credit_bytes = *credit;
    perf::LayersPlan plan = perf::MakePlan(outcome_.trace, policy.policy, at_rate);
    policy.settings = plan.policy;
    plan.rate_calls = 1 + kRateCallsOfTurn;
    plan.warmup = options_.warmup;
    plan.iterations = options_.iterations;
    fmt::print(stderr, "{}\n", policy.policy);
    std::vector<double> rates;
    if (auto ok = Turn(plan, policy.policy, policy, rates); !ok) return ok;
    outcome_.rates.insert(outcome_.rates.end(), rates.begin() + 1, rates.end());
    return {};
  }

  Result<void> Turn(const perf::LayersPlan& plan, const std::string& name, PolicyOutcome& outcome, std::vector<double>& rates) {
    auto dir = measurement_.folder.NewTurn(num_turns_);
    if (!dir) return tl::make_unexpected(dir.error());
    lab::Turn turn;
    turn.backend = "layers";
    turn.hosts = measurement_.workers;
    turn.timeout_s = options_.timeout_s;
    turn.declared = {{"classes", kLayerClasses}};
    turn.spec.dir = *dir;
    turn.spec.world_size = outcome_.ranks;
    turn.spec.ranks_per_host = options_.ranks_per_host;
    turn.spec.keeps_small = false;
    turn.spec.seed = options_.seed * 1000 + static_cast<uint64_t>(num_turns_);
    turn.spec.timeout_s = options_.timeout_s;
    turn.spec.job = fmt::format("layers-{}-{}-{}", getpid(), num_turns_++, name);
    if (auto ok = perf::SavePlan(perf::PlanFile(turn.spec), plan); !ok) return ok;
    std::vector<Result<Snapshot>> snapshots;
    const auto ranks = RunTurn(measurement_.paths, turn, stop_, [&] { snapshots.push_back(TakeSnapshot(measurement_.paths)); });
    if (!ranks) return tl::make_unexpected(ranks.error());
    for (const auto& snapshot : snapshots) {
      if (!snapshot) return tl::make_unexpected(snapshot.error());
    }
    if (snapshots.size() == 2) {
      outcome.cpu_busy += snapshots[1]->cpu_busy - snapshots[0]->cpu_busy;
      outcome.cpu_total += snapshots[1]->cpu_total - snapshots[0]->cpu_total;
    }
    MergeTurn(*ranks, outcome_.trace.Bytes(), outcome, &rates);
    return {};
  }

  const Measurement& measurement_;
  const LayersOptions& options_;
  const std::atomic<bool>& stop_;
  perf::PolicyOptions options_at_rate_;
  LayersOutcome outcome_;
  int num_turns_ = 0;
};

Result<void> Layers(Globals& globals, const LayersOptions& options) {
  const auto measurement = BeginMeasurement(globals, "layers");
  if (!measurement) return tl::make_unexpected(measurement.error());
  StopOnSignal signals;
  const auto outcome = LayersRun(*measurement, options, signals.flag()).Run();
  if (!outcome) return tl::make_unexpected(outcome.error());
  if (outcome->Wrong() > 0) globals.exit_code = 1;
  if (!globals.json) {
    fmt::print("{}", RenderOutcome(*outcome));
    return {};
  }
  Json json = OutcomeToJson(*outcome);
  json["schema"] = "mlnet-lab.layers/1";
  json["name"] = globals.name;
  json["seed"] = options.seed;
  fmt::print("{}\n", json.dump());
  return {};
}

}  // namespace

void AddLayersCommand(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<LayersOptions>();
  auto* command = app.add_subcommand("layers", "Play a recorded training on the lab that is up, by one policy of the scheduler after the other");
  command->add_option("--trace", options->trace, "vgg19, resnet50, or a file of traces/record.py")->capture_default_str();
  command->add_option("--policy", options->policies, "Policies, a row each: fifo, layers, p3, bytescheduler, tac")
      ->delimiter(',')
      ->check(CLI::IsMember(perf::PolicyNames()));
  command->add_option("--scale", options->scale, "Divide the trace's bytes and times by this")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  command->add_option("--iters", options->iterations, "Iterations of a policy in each round")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--warmup", options->warmup, "Iterations before, in each round")->check(CLI::Range(0, 1000))->capture_default_str();
  command->add_option("--rounds", options->rounds, "How often the policies take turns")->check(CLI::Range(1, 1000))->capture_default_str();
  command->add_option("--partition", options->partition, "Size of bytescheduler's chunks; else half the credit");
  command->add_option("--credit", options->credit, "Bytes under way in a level and those above it, of all but fifo; else what is sent in 20 ms, or 200 KB");
  command->add_option("--ranks-per-host", options->ranks_per_host, "Ranks on each worker")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--timeout", options->timeout_s, "Seconds for one turn")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the inputs")->capture_default_str();
  SetAction(command, globals, [&globals, options] { return Layers(globals, *options); });
}

}  // namespace mlnet::lab
