// SPDX-License-Identifier: Apache-2.0
// mlnet-lab perf: all-reduce over the lab that is up, in the shape of nccl-tests, with peers on the same
// links. The backends, and the wire types of mlnet, take turns, round after round, so that whatever else the
// machine does falls on all of them; no XDP program is on the lab's ports during a peer's turn, since it
// would switch off the peer's segmentation offload.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "commands.h"
#include "measurement.h"
#include "mlnet-perf/element_type.h"
#include "mlnet-perf/names.h"
#include "perf_sizes.h"
#include "perf_support.h"
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
  std::vector<std::string> shapes = {""};
  std::string multicast;
  std::vector<std::string> placements = {"racks"};
  std::string dtype = "float32";
  std::string op = "sum";
  std::string bound = "element";
  std::string algorithm;  // Gloo's
  std::string small_bytes;
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
  std::vector<Contender> contenders;
  int rounds = 1;
  const std::atomic<bool>* stop = nullptr;
};

Result<std::vector<uint64_t>> CountsOf(const PerfOptions& options, size_t element_bytes) {
  if (!options.counts.empty()) return ParseSizes(options.counts);
  const auto sizes = ParseSizes(options.sizes);
  if (!sizes) return tl::make_unexpected(sizes.error());
  return CountsOfSizes(*sizes, element_bytes);
}

Result<perf::Spec> MakeSpec(const PerfOptions& options, int world_size) {
  perf::Spec spec;
  const perf::ElementType& type = *perf::FindType(options.dtype);  // CLI11 has looked at both names
  const auto counts = CountsOf(options, type.bytes);
  if (!counts) return tl::make_unexpected(counts.error());
  spec.world_size = world_size;
  spec.ranks_per_host = options.ranks_per_host;
  spec.dtype = type.dtype;
  spec.op = *perf::FindOp(options.op);
  spec.keeps_small = options.bound == "element";
  spec.counts = *counts;
  spec.warmup = options.warmup;
  spec.check_all = options.check_all;
  spec.algorithm = options.algorithm;
  if (options.small_bytes.empty()) return spec;
  const auto small = ParseSizes(options.small_bytes);
  if (!small) return tl::make_unexpected(small.error());
  spec.small_bytes = small->front();
  return spec;
}

// To mlnet's trees the order of the ranks is nothing: it has the first.
std::vector<Contender> ContendersOf(const PerfOptions& options, const std::vector<WireType>& wires) {
  std::vector<Contender> contenders;
  for (const WireType wire : wires) {
    for (const std::string& shape : options.shapes)
      contenders.push_back({"mlnet", wire, shape, options.placements.front()});
  }
  for (const std::string& peer : options.compare) {
    for (const std::string& placement : options.placements)
      contenders.push_back({peer, WireType::kInt32, "", placement});
  }
  return contenders;
}

// What would be lost without a trace in a lab whose workers keep their segmentation offload.
Result<void> CheckOffload(const Topology& topology, const PerfOptions& options) {
  const bool sums_at_workers = std::any_of(options.shapes.begin(), options.shapes.end(),
                                           [](const std::string& shape) { return !shape.empty() && shape != "star"; });
  if (!topology.offload || (!sums_at_workers && options.ranks_per_host == 1)) return {};
  return Err(ErrorCode::kUnsupported, "hosts of ranks cannot sum in a lab with --offload: one rank a host, --shape star",
             "mlnet-lab up without --offload");
}

Result<Plan> MakePlan(const Paths& paths, const PerfOptions& options) {
  Plan plan;
  auto state = LoadReadyState(paths);
  if (!state) return tl::make_unexpected(state.error());
  plan.state = std::move(*state);
  if (auto ok = CheckOffload(plan.state.topology, options); !ok) return tl::make_unexpected(ok.error());
  const auto wires = ParseWires(options.wires);
  if (!wires) return tl::make_unexpected(wires.error());
  plan.workers = WorkersOf(plan.state.topology);
  auto spec = MakeSpec(options, static_cast<int>(plan.workers.size()) * options.ranks_per_host);
  if (!spec) return tl::make_unexpected(spec.error());
  plan.spec = std::move(*spec);
  auto contenders = ContendersOf(options, *wires);
  if (auto ok = CheckSupport(contenders, plan.spec); !ok) return tl::make_unexpected(ok.error());
  if (!plan.state.has_daemons) {
    fmt::print(stderr, "lab '{}' runs no daemons: mlnet is not measured\n", paths.lab);
    std::erase_if(contenders, [](const Contender& contender) { return contender.IsMlnet(); });
  }
  if (contenders.empty()) {
    return Err(ErrorCode::kUnavailable, "nothing to measure",
               "mlnet-lab up without --no-daemons, or --compare gloo");
  }
  for (const Contender& contender : contenders) {
    if (auto program = FindRankProgram(contender.backend); !program)
      return tl::make_unexpected(program.error());
  }
  plan.contenders = std::move(contenders);
  const int rounds = options.rounds > 0 ? options.rounds : plan.contenders.size() > 1 ? 3 : 1;
  plan.rounds = std::min(options.iterations, rounds);
  plan.spec.iterations = (options.iterations + plan.rounds - 1) / plan.rounds;
  return plan;
}

/// By the lab's own command, which keeps state file, daemons and ports in step.
Result<void> SwitchXdp(const Paths& paths, bool on) {
  auto done = Run({"/proc/self/exe", "--name", paths.lab, "xdp", on ? "on" : "off"});
  if (!done) return tl::make_unexpected(done.error());
  return {};
}

/// The rows of each contender, in the plan's order.
using Rows = std::vector<std::vector<PerfRow>>;

// Of the slowest worker. Ranks that share a host share its link, each backend in its own way.
uint64_t LinkOf(const Plan& plan) {
  if (plan.spec.ranks_per_host > 1) return 0;
  const auto slower = [](const Host& a, const Host& b) { return a.rate_bps < b.rate_bps; };
  return std::min_element(plan.workers.begin(), plan.workers.end(), slower)->rate_bps;
}

PerfRow ShapeOf(const Contender& contender, const perf::Spec& spec, uint64_t link_bps) {
  PerfRow shape;
  shape.backend = contender.backend;
  shape.wire = contender.IsMlnet() ? perf::WireName(contender.wire) : "";
  shape.bound = BoundName(contender, spec);
  shape.has_kernel_counters = contender.IsMlnet();
  shape.shape = contender.shape;
  shape.placement = contender.placement;
  shape.ranks = spec.world_size;
  shape.dtype = spec.dtype;
  shape.op = spec.op;
  shape.link_bps = link_bps;
  return shape;
}

// Of a turn that takes long: how many of its sizes are done.
class Progress {
 public:
  explicit Progress(size_t rows) : rows_(rows) {}
  void Show(size_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (done == 0 || done == rows_ || now - shown_ < kQuiet) return;
    shown_ = now;
    fmt::print(stderr, "  {} of {} sizes\n", done, rows_);
  }

 private:
  static constexpr std::chrono::seconds kQuiet{5};
  size_t rows_;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

Result<void> Measure(const Paths& paths, const Plan& plan, const Turn& turn, PerfRow shape,
                     std::vector<PerfRow>& rows) {
  std::vector<Result<Snapshot>> snapshots;
  Progress progress(turn.spec.counts.size());
  const auto results = RunTurn(paths, turn, *plan.stop, [&] {
    snapshots.push_back(TakeSnapshot(paths));
    progress.Show(snapshots.size() / 2);
  });
  if (!results) return tl::make_unexpected(results.error());
  const auto& racks = plan.state.topology.racks;
  shape.has_racks = !racks.empty();
  MergeTurn(*results, shape, rows);
  for (const auto& snapshot : snapshots) {
    if (!snapshot) return tl::make_unexpected(snapshot.error());
  }
  if (shape.has_kernel_counters && IsForwardedInXdp(plan.state.topology)) {
    for (auto& snapshot : snapshots) snapshot->links.clear();  // no queue counts those frames
  }
  for (size_t i = 0; i < rows.size(); ++i) rows[i].spent.Add(*snapshots[2 * i], *snapshots[2 * i + 1], racks);
  return {};
}

Result<void> RunAll(const Paths& paths, Plan& plan, const PerfOptions& options, bool& is_on, Rows& rows) {
  auto folder = WorkFolder::Create(paths, "perf");
  if (!folder) return tl::make_unexpected(folder.error());
  const int turns = plan.rounds * static_cast<int>(plan.contenders.size());
  int turn_number = 0;
  rows.resize(plan.contenders.size());
  for (int round = 0; round < plan.rounds; ++round) {
    for (size_t i = 0; i < plan.contenders.size(); ++i) {
      const Contender& contender = plan.contenders[i];
      ++turn_number;
      if (turns > 1) fmt::print(stderr, "turn {} of {}: {}\n", turn_number, turns, contender.Name());
      if (is_on != contender.IsMlnet()) {
        is_on =
            contender.IsMlnet();  // even if it fails: it may have done a part, and the caller switches back
        if (auto ok = SwitchXdp(paths, is_on); !ok) return ok;
      }
      const auto dir = folder->NewTurn(turn_number);
      if (!dir) return tl::make_unexpected(dir.error());
      Turn turn{.backend = contender.backend, .spec = plan.spec, .hosts = PlaceHosts(plan.workers, contender.placement), .timeout_s = options.timeout_s};
      if (!contender.shape.empty()) turn.declared["shape"] = contender.shape;
      if (contender.IsMlnet() && !options.multicast.empty()) turn.declared["multicast"] = options.multicast;
      turn.spec.wire = contender.wire;
      turn.spec.travels_as_half = contender.backend == "gloo-fp16";
      if (contender.backend == "mpi") turn.spec.algorithm.clear();
      turn.spec.dir = *dir;
      turn.spec.seed = options.seed * 1000 + static_cast<uint64_t>(round);
      turn.spec.job = fmt::format("perf-{}-{}", getpid(), turn_number);
      if (auto ok = Measure(paths, plan, turn, ShapeOf(contender, plan.spec, LinkOf(plan)), rows[i]); !ok) return ok;
    }
  }
  return {};
}

void PrintRows(const Globals& globals, const Plan& plan, const PerfOptions& options,
               const Rows& by_contender) {
  std::vector<PerfRow> rows;
  for (size_t i = 0; i < plan.spec.counts.size(); ++i) {
    for (const auto& of_contender : by_contender) rows.push_back(of_contender[i]);
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
  StopOnSignal signals;
  plan->stop = &signals.flag();
  const bool was_on = plan->state.xdp == XdpMode::kOn;
  bool is_on = was_on;
  Rows rows;
  auto done = RunAll(paths, *plan, options, is_on, rows);
  if (is_on != was_on) {
    auto restored = SwitchXdp(paths, was_on);
    if (done && !restored) done = restored;
  }
  if (!done) return done;
  PrintRows(globals, *plan, options, rows);
  for (const auto& of_contender : rows) {
    if (WrongOf(of_contender) > 0) globals.exit_code = 1;
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
  command->add_option("--wire", options->wires, "Wire types of mlnet, a row each: int32, int16, int8")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "Type of the elements")
      ->check(CLI::IsMember(perf::TypeNames()))
      ->capture_default_str();
  command->add_option("--op", options->op, "Reduction")
      ->check(CLI::IsMember(perf::OpNames()))
      ->capture_default_str();
  command
      ->add_option(
          "--bound", options->bound,
          "Accuracy of mlnet's float sums: of each element, as all_reduce has it, or of the block, as "
          "gradients may")
      ->check(CLI::IsMember({"element", "block"}))
      ->capture_default_str();
  command->add_option("--ranks-per-host", options->ranks_per_host, "Ranks on each worker")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--iters", options->iterations, "Timed collectives per size, over all rounds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--warmup", options->warmup, "Collectives before, in each round")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--rounds", options->rounds,
                   "How often the rows take turns (3 if there are several, else 1)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--check", options->check_all,
                    "Check every collective; else the last of each size and round");
  command->add_option("--compare", options->compare, "Peers on the same links: gloo, gloo-fp16 (float32 compressed to float16), mpi")
      ->delimiter(',')
      ->check(CLI::IsMember({"gloo", "gloo-fp16", "mpi"}));
  command->add_option("--gloo-algorithm", options->algorithm, "The algorithm that Gloo takes; else the fastest in a trial of each round")
      ->check(CLI::IsMember({"ring", "bcube", "halving-doubling"}));
  command->add_option("--small-bytes", options->small_bytes,
                      "Bytes over all ranks up to which the ranks add mlnet's sums of floats themselves, in one round trip instead of two; "
                      "the library's default is 16K, but here none unless told");
  command->add_option("--multicast", options->multicast, "How mlnet's results travel: auto, on, off")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  command->add_option("--shape", options->shapes,
                      "Shapes of mlnet's trees, a row each: star, shards, workers, ... as mlnetctl job create has them")
      ->delimiter(',');
  command
      ->add_option("--placement", options->placements,
                   "Order of the ranks over the hosts: racks (one after the other), interleaved; peers have a row each")
      ->delimiter(',')
      ->check(CLI::IsMember({"racks", "interleaved"}));
  command->add_option("--timeout", options->timeout_s, "Seconds for one backend's turn")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the inputs")->capture_default_str();
  SetAction(command, globals, [&globals, options] { return Perf(globals, *options); });
}

}  // namespace mlnet::lab
