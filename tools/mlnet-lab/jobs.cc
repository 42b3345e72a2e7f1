// SPDX-License-Identifier: Apache-2.0
// mlnet-lab jobs: many jobs at once on the same hosts, once for each order, so that what the machine does besides
// falls on all of them alike. All data differ between jobs and every sum is checked.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "base/errno_error.h"
#include "jobs_report.h"
#include "measurement.h"
#include "mlnet-perf/job_files.h"
#include "perf_sizes.h"
#include "perf_traffic.h"
#include "perf_turn.h"

namespace mlnet::lab {
namespace {

constexpr std::chrono::milliseconds kLookEvery{10};

struct JobsOptions {
  int count = 4;
  std::string bytes = "16M";
  int calls = 4;
  std::vector<std::string> orders = {"fair"};
  std::vector<uint32_t> weights = {1};
  int ranks_per_host = 1;
  int timeout_s = 900;
  uint64_t seed = 1;
};

class Round {
 public:
  /// `stop` is set here, too: when a job fails the others have nothing left to measure.
  Round(const Measurement& measurement, const JobsOptions& options, const std::string& order, std::atomic<bool>& stop)
      : measurement_(measurement), options_(options), order_(order), stop_(stop) {}

  Result<JobsOutcome> Run() {
    measurement_.folder.Clear();
    outcome_.order = order_;
    if (auto ok = MakeTurns(); !ok) return tl::make_unexpected(ok.error());
    std::vector<Result<std::vector<std::vector<perf::RankRow>>>> results(turns_.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < turns_.size(); ++i) {
      threads.emplace_back([&, i] {
        results[i] = RunTurn(measurement_.paths, turns_[i], stop_, [] {});
        if (!results[i]) stop_ = true;
      });
    }
    OpenGate();
    const auto before = TakeSnapshot(measurement_.paths);
    for (std::thread& thread : threads) thread.join();
    const auto after = TakeSnapshot(measurement_.paths);
    if (!before) return tl::make_unexpected(before.error());
    if (!after) return tl::make_unexpected(after.error());
    Spent spent;
    spent.Add(*before, *after, {});
    outcome_.cpu_share = spent.CpuPercent() / 100;
    return Collect(results);
  }

 private:
  Result<void> MakeTurns() {
    const auto bytes = ParseSizes(options_.bytes);
    if (!bytes) return tl::make_unexpected(bytes.error());
    const uint64_t count = bytes->front() / sizeof(float) / static_cast<uint64_t>(options_.calls);
    if (bytes->size() != 1 || count == 0) return Err(ErrorCode::kInvalidArgument, "--bytes is one size, at least 4 for each call");
    for (int i = 0; i < options_.count; ++i) {
      const uint32_t weight = options_.weights[static_cast<size_t>(i) % options_.weights.size()];
      Turn turn;
      turn.backend = "job";
      turn.hosts = measurement_.workers;
      turn.timeout_s = options_.timeout_s;
      turn.spec.world_size = static_cast<int>(turn.hosts.size()) * options_.ranks_per_host;
      turn.spec.ranks_per_host = options_.ranks_per_host;
      turn.spec.counts = {count};
      turn.spec.iterations = options_.calls;
      turn.spec.keeps_small = false;
      turn.spec.seed = options_.seed * 1000 + static_cast<uint64_t>(i);
      turn.spec.timeout_s = options_.timeout_s;
      turn.spec.job = fmt::format("jobs-{}-{}-{:02}", getpid(), order_, i);
      turn.spec.dir = (measurement_.folder.path() / std::to_string(i)).string();
      std::error_code error;
      std::filesystem::create_directories(turn.spec.dir, error);
      if (error) return tl::make_unexpected(ErrnoError("create " + turn.spec.dir, error.value()));
      turn.declared = {{"order", order_}, {"weight", weight}};
      JobOutcome& outcome = outcome_.jobs.emplace_back();
      outcome.name = turn.spec.job;
      outcome.weight = weight;
      turns_.push_back(std::move(turn));
    }
    return {};
  }

  // All at once, when the last rank has joined.
  void OpenGate() const {
    const auto is_ready = [](const Turn& turn) {
      for (int rank = 0; rank < turn.spec.world_size; ++rank) {
        if (access(perf::ReadyFile(turn.spec, rank).c_str(), F_OK) != 0) return false;
      }
      return true;
    };
    for (const Turn& turn : turns_) {
      while (!stop_ && !is_ready(turn)) std::this_thread::sleep_for(kLookEvery);
    }
    std::ofstream(perf::GateFile(turns_.front().spec)).put('\n');
  }

  Result<JobsOutcome> Collect(const std::vector<Result<std::vector<std::vector<perf::RankRow>>>>& results) {
    for (const auto& result : results) {
      if (!result && result.error().code != ErrorCode::kCancelled) return tl::make_unexpected(result.error());
    }
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i]) return tl::make_unexpected(results[i].error());
      JobOutcome& job = outcome_.jobs[i];
      for (const auto& rows : *results[i]) {
        const perf::RankRow& row = rows.front();
        job.seconds = std::max(job.seconds, static_cast<double>(row.times_ns.front()) / 1e9);
        job.wrong += row.wrong;
        job.checked += row.checked;
        job.summed_in_kernel += row.summed_in_kernel;
        job.retransmits += row.retransmits;
      }
      std::ifstream file(perf::SamplesFile(turns_[i].spec));
      for (uint64_t at_ns = 0, bytes = 0; file >> at_ns >> bytes;) job.samples.push_back({at_ns, bytes});
    }
    return outcome_;
  }

  const Measurement& measurement_;
  const JobsOptions& options_;
  const std::string order_;
  std::atomic<bool>& stop_;
  std::vector<Turn> turns_;
  JobsOutcome outcome_;
};

Result<void> Jobs(Globals& globals, const JobsOptions& options) {
  const auto measurement = BeginMeasurement(globals, "jobs");
  if (!measurement) return tl::make_unexpected(measurement.error());
  StopOnSignal signals;
  std::vector<JobsOutcome> outcomes;
  for (const std::string& order : options.orders) {
    fmt::print(stderr, "{} jobs, order {}\n", options.count, order);
    auto outcome = Round(*measurement, options, order, signals.flag()).Run();
    if (!outcome) return tl::make_unexpected(outcome.error());
    if (outcome->Wrong() > 0) globals.exit_code = 1;
    outcomes.push_back(std::move(*outcome));
  }
  if (!globals.json) {
    fmt::print("{}", RenderOutcomes(outcomes));
    return {};
  }
  Json rounds = Json::array();
  for (const JobsOutcome& outcome : outcomes) rounds.push_back(OutcomeToJson(outcome));
  fmt::print("{}\n", Json{{"schema", "mlnet-lab.jobs/1"}, {"name", globals.name}, {"count", options.count},
                          {"bytes", options.bytes}, {"seed", options.seed}, {"rounds", rounds}}.dump());
  return {};
}

}  // namespace

void AddJobsCommand(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<JobsOptions>();
  auto* command = app.add_subcommand("jobs", "Run many jobs at once on the lab that is up, in one order after the other");
  command->add_option("--count", options->count, "Jobs; each has its ranks on every worker")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--bytes", options->bytes, "What each rank of a job transfers")->capture_default_str();
  command->add_option("--calls", options->calls, "In so many collectives, one after the other")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--order", options->orders, "Orders, a row each: fair, shortest")
      ->delimiter(',')
      ->check(CLI::IsMember({"fair", "shortest"}))
      ->capture_default_str();
  command->add_option("--weights", options->weights, "Weights of the jobs, in turn")->delimiter(',')->check(CLI::Range(1, 100));
  command->add_option("--ranks-per-host", options->ranks_per_host, "Ranks of each job on each worker")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--timeout", options->timeout_s, "Seconds for all jobs of one order")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the inputs")->capture_default_str();
  SetAction(command, globals, [&globals, options] { return Jobs(globals, *options); });
}

}  // namespace mlnet::lab
