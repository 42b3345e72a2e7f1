// SPDX-License-Identifier: Apache-2.0
// mlnet-lab urgent: how long a small tensor takes while a large one fills the links: alone, in a more urgent class, in
// such a class without marks on its packets, and behind it in the same class. All in one run, so that what the machine
// does besides falls on all of them alike.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "measurement.h"
#include "perf_sizes.h"
#include "perf_traffic.h"
#include "perf_turn.h"

namespace mlnet::lab {
namespace {

constexpr int kClasses = 8;  // all that there are

struct UrgentOptions {
  std::string backlog = "256M", urgent = "1M";
  int samples = 9;
  int fifo_samples = 3;
  std::string shape = "auto";
  int timeout_s = 300;
};

/// Seconds of the slowest rank, a value each sample.
struct Case {
  std::vector<double> seconds;
  double Median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? 0 : sorted[sorted.size() / 2];
  }
  Json ToJson() const { return {{"median_s", Median()}, {"seconds", seconds}}; }
};

struct Outcome {
  Case idle, behind, unmarked, fifo;
  uint64_t wrong = 0, checked = 0, retransmits = 0;
  double cpu_percent = 0;

  double Ratio(const Case& c) const { return idle.Median() > 0 ? c.Median() / idle.Median() : 0; }
};

Case CaseOf(const std::vector<std::vector<perf::RankRow>>& ranks, size_t row) {
  Case c;
  c.seconds.resize(ranks.front()[row].times_ns.size());
  for (const auto& rows : ranks) {
    for (size_t i = 0; i < c.seconds.size(); ++i) c.seconds[i] = std::max(c.seconds[i], static_cast<double>(rows[row].times_ns[i]) / 1e9);
  }
  return c;
}

Result<uint64_t> FloatsIn(const std::string& text) {
  const auto sizes = ParseSizes(text);
  if (!sizes) return tl::make_unexpected(sizes.error());
  if (sizes->size() != 1 || sizes->front() < sizeof(float)) return Err(ErrorCode::kInvalidArgument, "'" + text + "' is not one size of at least 4");
  return sizes->front() / sizeof(float);
}

class UrgentRun {
 public:
  UrgentRun(const Measurement& measurement, const UrgentOptions& options, const std::atomic<bool>& stop)
      : measurement_(measurement), options_(options), stop_(stop) {}

  Result<Outcome> Run() {
    Outcome outcome;
    const auto before = TakeSnapshot(measurement_.paths);
    if (!before) return tl::make_unexpected(before.error());
    const auto marked = RunOne("marked", kClasses - 1, options_.fifo_samples, outcome);
    if (!marked) return tl::make_unexpected(marked.error());
    const auto unmarked = RunOne("unmarked", 0, 0, outcome);
    if (!unmarked) return tl::make_unexpected(unmarked.error());
    const auto after = TakeSnapshot(measurement_.paths);
    if (!after) return tl::make_unexpected(after.error());
    Spent spent;
    spent.Add(*before, *after, {});
    outcome.cpu_percent = spent.CpuPercent();
    outcome.idle = CaseOf(*marked, 0);
    outcome.behind = CaseOf(*marked, 1);
    outcome.fifo = CaseOf(*marked, 2);
    outcome.unmarked = CaseOf(*unmarked, 1);
    return outcome;
  }

 private:
  using Rows = std::vector<std::vector<perf::RankRow>>;

  // With a ceiling of 0 all classes have the mark of class 0.
  Result<Rows> RunOne(const std::string& name, int ceiling, int fifo_samples, Outcome& outcome) {
    const auto backlog = FloatsIn(options_.backlog), urgent = FloatsIn(options_.urgent);
    if (!backlog) return tl::make_unexpected(backlog.error());
    if (!urgent) return tl::make_unexpected(urgent.error());
    const auto dir = measurement_.folder.NewTurn(num_turns_++);
    if (!dir) return tl::make_unexpected(dir.error());
    Turn turn;
    turn.backend = "urgent";
    turn.hosts = measurement_.workers;
    turn.timeout_s = options_.timeout_s;
    turn.spec.world_size = static_cast<int>(turn.hosts.size());
    turn.spec.counts = {*backlog, *urgent};
    turn.spec.iterations = options_.samples;
    turn.spec.warmup = fifo_samples;
    turn.spec.keeps_small = false;
    turn.spec.timeout_s = options_.timeout_s;
    turn.spec.job = fmt::format("urgent-{}-{}", getpid(), name);
    turn.spec.dir = *dir;
    turn.declared = {{"classes", kClasses}, {"ceiling", ceiling}, {"shape", options_.shape}};
    fmt::print(stderr, "{}: {} ranks, {} behind {}\n", name, turn.spec.world_size, options_.urgent, options_.backlog);
    auto rows = RunTurn(measurement_.paths, turn, stop_, [] {});
    for (const auto& of_rank : rows ? *rows : Rows{}) {
      for (const perf::RankRow& row : of_rank) {
        outcome.wrong += row.wrong;
        outcome.checked += row.checked;
        outcome.retransmits += row.retransmits;
      }
    }
    return rows;
  }

  const Measurement& measurement_;
  const UrgentOptions& options_;
  const std::atomic<bool>& stop_;
  int num_turns_ = 0;
};

void Print(const Outcome& outcome) {
  const auto line = [&](const char* name, const Case& c) {
    if (c.seconds.empty()) return;
    const auto [least, most] = std::minmax_element(c.seconds.begin(), c.seconds.end());
    fmt::print("{:<34} {:9.4f} s  {:7.2f} x  [{:.4f}, {:.4f}]\n", name, c.Median(), outcome.Ratio(c), *least, *most);
  };
  line("alone", outcome.idle);
  line("in class 7, backlog in class 0", outcome.behind);
  line("the same, packets not marked", outcome.unmarked);
  line("in the backlog's class", outcome.fifo);
  fmt::print("{} of {} elements wrong, {} resends, processors {:.0f} % busy\n", outcome.wrong, outcome.checked, outcome.retransmits,
             outcome.cpu_percent);
}

Result<void> Urgent(Globals& globals, const UrgentOptions& options) {
  const auto measurement = BeginMeasurement(globals, "urgent");
  if (!measurement) return tl::make_unexpected(measurement.error());
  StopOnSignal signals;
  const auto outcome = UrgentRun(*measurement, options, signals.flag()).Run();
  if (!outcome) return tl::make_unexpected(outcome.error());
  if (outcome->wrong > 0) globals.exit_code = 1;
  if (!globals.json) {
    Print(*outcome);
    return {};
  }
  fmt::print("{}\n", Json{{"schema", "mlnet-lab.urgent/1"}, {"name", globals.name}, {"backlog", options.backlog}, {"urgent", options.urgent},
                          {"priorities", measurement->state.topology.priorities}, {"idle", outcome->idle.ToJson()},
                          {"behind", outcome->behind.ToJson()}, {"unmarked", outcome->unmarked.ToJson()}, {"fifo", outcome->fifo.ToJson()},
                          {"ratio_behind", outcome->Ratio(outcome->behind)}, {"ratio_unmarked", outcome->Ratio(outcome->unmarked)},
                          {"ratio_fifo", outcome->Ratio(outcome->fifo)}, {"wrong", outcome->wrong}, {"checked", outcome->checked},
                          {"retransmits", outcome->retransmits}, {"cpu", outcome->cpu_percent}}.dump());
  return {};
}

}  // namespace

void AddUrgentCommand(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<UrgentOptions>();
  auto* command = app.add_subcommand("urgent", "Time a small tensor while a large one fills the links of the lab that is up");
  command->add_option("--backlog", options->backlog, "The large one, of each rank")->capture_default_str();
  command->add_option("--urgent", options->urgent, "The small one")->capture_default_str();
  command->add_option("--samples", options->samples, "Of the small one, all while one large one is under way")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--fifo-samples", options->fifo_samples, "In the class of the large one, which is sent again for each")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  command->add_option("--shape", options->shape, "Of the job's trees")->capture_default_str();
  command->add_option("--timeout", options->timeout_s, "Seconds for each turn")->check(CLI::PositiveNumber)->capture_default_str();
  SetAction(command, globals, [&globals, options] { return Urgent(globals, *options); });
}

}  // namespace mlnet::lab
