// SPDX-License-Identifier: Apache-2.0
// mlnet-lab perf: all-reduce over the lab that is up, in the shape of nccl-tests, with peers on the same
// links. The backends take turns, round after round, so that whatever else the machine does falls on all of
// them; no XDP program is on the lab's ports during a peer's turn, since it would switch off the peer's
// segmentation offload.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>

#include "base/errno_error.h"
#include "base/fd.h"
#include "commands.h"
#include "perf_sizes.h"
#include "perf_table.h"
#include "perf_turn.h"
#include "process.h"

namespace mlnet::lab {
namespace {

struct PerfOptions {
  std::string sizes = "64M";
  std::string counts;
  std::vector<std::string> wires = {"int32"};
  std::vector<std::string> compare;
  std::string dtype = "float32";
  std::string op = "sum";
  int ranks_per_host = 1;
  int iterations = 20;
  int warmup = 2;
  int rounds = 0;  // 0: 3 with peers, 1 without
  int timeout_s = 600;
  uint64_t seed = 1;
  bool check_all = false;
};

struct Plan {
  State state;
  perf::Spec spec;
  std::vector<Host> workers;
  std::vector<std::string> backends;
  int rounds = 1;
};

std::atomic<bool> g_stop{false};

/// While it lives, SIGINT and SIGTERM end the turn, and what was switched is switched back.
class StopOnSignal {
 public:
  StopOnSignal() {
    struct sigaction action {};
    action.sa_handler = [](int) { g_stop.store(true); };
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
  }
  ~StopOnSignal() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
  }

 private:
  struct sigaction old_int_ {
  }, old_term_{};
};

Result<void> CheckWires(const std::vector<std::string>& wires) {
  for (const std::string& wire : wires) {
    if (wire == "int32") continue;
    if (wire == "int16" || wire == "int8") {
      return Err(ErrorCode::kUnsupported, fmt::format("wire type {} is not supported yet by libmlnet", wire),
                 "--wire int32");
    }
    return Err(ErrorCode::kInvalidArgument, fmt::format("'{}' is no wire type", wire), "--wire int32");
  }
  return {};
}

Result<std::vector<uint64_t>> CountsOf(const PerfOptions& options) {
  if (!options.counts.empty()) return ParseSizes(options.counts);
  const auto sizes = ParseSizes(options.sizes);
  if (!sizes) return tl::make_unexpected(sizes.error());
  return CountsOfSizes(*sizes, sizeof(float));
}

Result<Plan> MakePlan(const Paths& paths, const PerfOptions& options) {
  Plan plan;
  auto state = LoadReadyState(paths);
  if (!state) return tl::make_unexpected(state.error());
  plan.state = std::move(*state);
  if (auto ok = CheckWires(options.wires); !ok) return tl::make_unexpected(ok.error());
  const auto counts = CountsOf(options);
  if (!counts) return tl::make_unexpected(counts.error());
  for (const Host& host : plan.state.topology.hosts) {
    if (!host.is_aggregator) plan.workers.push_back(host);
  }
  if (plan.state.has_daemons)
    plan.backends.push_back("mlnet");
  else
    fmt::print(stderr, "lab '{}' runs no daemons: mlnet is not measured\n", paths.lab);
  for (const std::string& peer : options.compare) plan.backends.push_back(peer);
  if (plan.backends.empty()) {
    return Err(ErrorCode::kUnavailable, "nothing to measure",
               "mlnet-lab up without --no-daemons, or --compare gloo");
  }
  for (const std::string& backend : plan.backends) {
    if (auto program = FindRankProgram(backend); !program) return tl::make_unexpected(program.error());
  }
  plan.rounds = std::min(options.iterations, options.rounds > 0         ? options.rounds
                                             : plan.backends.size() > 1 ? 3
                                                                        : 1);
  plan.spec.world_size = static_cast<int>(plan.workers.size()) * options.ranks_per_host;
  plan.spec.ranks_per_host = options.ranks_per_host;
  plan.spec.dtype = options.dtype == "int32" ? DataType::kInt32 : DataType::kFloat32;
  plan.spec.counts = *counts;
  plan.spec.iterations = (options.iterations + plan.rounds - 1) / plan.rounds;
  plan.spec.warmup = options.warmup;
  plan.spec.check_all = options.check_all;
  return plan;
}

/// By the lab's own command, which keeps state file, daemons and ports in step.
Result<void> SwitchXdp(const Paths& paths, bool on) {
  auto done = Run({"/proc/self/exe", "--name", paths.lab, "xdp", on ? "on" : "off"});
  if (!done) return tl::make_unexpected(done.error());
  return {};
}

/// One perf at a time in a lab; its folder is removed when it ends.
class WorkFolder {
 public:
  static Result<WorkFolder> Create(const Paths& paths) {
    const auto lock_file = paths.Dir() / "perf.lock";
    Fd lock(open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock) return tl::make_unexpected(ErrnoError("open " + lock_file.string(), errno));
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      return Err(ErrorCode::kConflict, fmt::format("another perf is at work in lab '{}'", paths.lab),
                 "wait for its end");
    }
    return WorkFolder(std::move(lock), paths.Dir() / "perf");
  }
  WorkFolder(WorkFolder&&) = default;
  ~WorkFolder() {
    if (lock_) Clear();
  }

  Result<std::string> NewTurn(int number) {
    const auto dir = path_ / std::to_string(number);
    std::error_code error;
    Clear();  // the turn before is done with its memory
    std::filesystem::create_directories(dir / "store", error);
    if (error) return tl::make_unexpected(ErrnoError("create " + dir.string(), error.value()));
    return dir.string();
  }

 private:
  WorkFolder(Fd lock, std::filesystem::path path) : lock_(std::move(lock)), path_(std::move(path)) {}
  void Clear() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  Fd lock_;
  std::filesystem::path path_;
};

using RowsByBackend = std::map<std::string, std::vector<PerfRow>>;

Result<void> RunAll(const Paths& paths, Plan& plan, const PerfOptions& options, bool& is_on,
                    RowsByBackend& rows) {
  auto folder = WorkFolder::Create(paths);
  if (!folder) return tl::make_unexpected(folder.error());
  const int turns = plan.rounds * static_cast<int>(plan.backends.size());
  int turn_number = 0;
  for (int round = 0; round < plan.rounds; ++round) {
    for (const std::string& backend : plan.backends) {
      ++turn_number;
      if (turns > 1) fmt::print(stderr, "turn {} of {}: {}\n", turn_number, turns, backend);
      const bool wants_on = backend == "mlnet";
      if (is_on != wants_on) {
        is_on = wants_on;  // even if it fails: it may have done a part, and the caller switches back
        if (auto ok = SwitchXdp(paths, wants_on); !ok) return ok;
      }
      const auto dir = folder->NewTurn(turn_number);
      if (!dir) return tl::make_unexpected(dir.error());
      Turn turn{backend, plan.spec, plan.workers, options.timeout_s};
      turn.spec.dir = *dir;
      turn.spec.seed = options.seed * 1000 + static_cast<uint64_t>(round);
      turn.spec.job = fmt::format("perf-{}-{}", getpid(), turn_number);
      const auto results = RunTurn(paths, turn, g_stop);
      if (!results) return tl::make_unexpected(results.error());
      PerfRow shape;
      shape.backend = backend;
      shape.wire = wants_on ? "int32" : "";
      shape.has_kernel_counters = wants_on;
      shape.ranks = plan.spec.world_size;
      shape.dtype = plan.spec.dtype;
      MergeTurn(*results, shape, rows[backend]);
    }
  }
  return {};
}

void PrintRows(const Globals& globals, const Plan& plan, const PerfOptions& options,
               const RowsByBackend& by_backend) {
  std::vector<PerfRow> rows;
  for (size_t i = 0; i < plan.spec.counts.size(); ++i) {
    for (const std::string& backend : plan.backends) rows.push_back(by_backend.at(backend)[i]);
  }
  if (globals.json) {
    fmt::print("{}\n", Json{{"schema", "mlnet-lab.perf/1"},
                            {"name", globals.name},
                            {"seed", options.seed},
                            {"ranks_per_host", options.ranks_per_host},
                            {"rounds", plan.rounds},
                            {"rows", RowsToJson(rows)}}
                           .dump());
    return;
  }
  fmt::print("# all-reduce in place, lab '{}': {} ranks on {} hosts, {} iterations in {} rounds, seed {}\n",
             globals.name, plan.spec.world_size, plan.workers.size(), plan.spec.iterations * plan.rounds,
             plan.rounds, options.seed);
  fmt::print("{}", RenderTable(rows));
  fmt::print("# out of bounds or different between ranks: {} elements\n{}", WrongOf(rows),
             RenderComparison(rows));
}

Result<void> Perf(Globals& globals, const PerfOptions& options) {
  if (auto ok = RequireRoot(); !ok) return ok;
  const Paths paths(globals.name);
  auto plan = MakePlan(paths, options);
  if (!plan) return tl::make_unexpected(plan.error());
  const StopOnSignal signals;
  const bool was_on = plan->state.xdp == XdpMode::kOn;
  bool is_on = was_on;
  RowsByBackend rows;
  auto done = RunAll(paths, *plan, options, is_on, rows);
  if (is_on != was_on) {
    auto restored = SwitchXdp(paths, was_on);
    if (done && !restored) done = restored;
  }
  if (!done) return done;
  PrintRows(globals, *plan, options, rows);
  for (const auto& [backend, of_backend] : rows) {
    if (WrongOf(of_backend) > 0) globals.exit_code = 1;
  }
  return {};
}

}  // namespace

void AddPerfCommand(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<PerfOptions>();
  auto* command =
      app.add_subcommand("perf", "Measure all-reduce on the lab that is up, and compare with peers");
  auto* sizes = command->add_option("--sizes", options->sizes, "Bytes: 64M, 1K:4M (doubling) or 4,8,1M")
                    ->capture_default_str();
  command->add_option("--counts", options->counts, "Elements instead of bytes: 1,3,353 or 1:1M")
      ->excludes(sizes);
  command->add_option("--wire", options->wires, "Wire types of mlnet")->delimiter(',')->capture_default_str();
  command->add_option("--dtype", options->dtype, "float32 or int32")
      ->check(CLI::IsMember({"float32", "int32"}))
      ->capture_default_str();
  command->add_option("--op", options->op, "Reduction")->check(CLI::IsMember({"sum"}))->capture_default_str();
  command->add_option("--ranks-per-host", options->ranks_per_host, "Ranks on each worker")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--iters", options->iterations, "Timed collectives per size, over all rounds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--warmup", options->warmup, "Collectives before, in each round")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "How often the backends take turns (3 with peers, else 1)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--check", options->check_all,
                    "Check every collective; else the last of each size and round");
  command->add_option("--compare", options->compare, "Peers on the same links: gloo, mpi")
      ->delimiter(',')
      ->check(CLI::IsMember({"gloo", "mpi"}));
  command->add_option("--timeout", options->timeout_s, "Seconds for one backend's turn")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the inputs")->capture_default_str();
  SetAction(command, globals, [&globals, options] { return Perf(globals, *options); });
}

}  // namespace mlnet::lab
