// SPDX-License-Identifier: Apache-2.0
// mlnet-lab up: a whole lab or nothing. What failed is said with its log; what was made is removed.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/vfs.h>

#include <atomic>
#include <cerrno>
#include <memory>

#include "base/errno_error.h"
#include "commands.h"
#include "daemons.h"
#include "faults.h"
#include "network.h"
#include "ports.h"
#include "teardown.h"
#include "units.h"

namespace mlnet::lab {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kReadyTimeout{15'000};
constexpr long kBpffsMagic = 0xcafe4a11;

std::atomic<bool> stop_requested = false;

struct UpOptions {
  std::string topology_file;
  int workers = 4;
  int aggregators = 1;
  std::string rate = "500mbit";
  std::string aggregator_rate = "2gbit";
  int racks = 0;
  double oversubscription = 0;
  uint32_t mtu = 1500;
  uint64_t seed = 1;
  std::string loss, duplicate, reorder, corrupt, delay;
  bool no_daemons = false;
  bool ipv6 = false;
  bool priorities = false;
  uint32_t queue_kib = 0, mark_kib = 0;
  bool offload = false;
};

// Which flags were given: only those override a topology file.
using Given = std::function<bool(const char*)>;

template <typename HostOrRack>
Result<void> ApplyFaultFlags(const UpOptions& options, HostOrRack& link) {
  for (Faults* faults : {&link.tx, &link.rx}) {
    for (const auto& [text, into] : {std::pair{&options.loss, &faults->loss_ppm},
                                     {&options.duplicate, &faults->duplicate_ppm},
                                     {&options.reorder, &faults->reorder_ppm},
                                     {&options.corrupt, &faults->corrupt_ppm}}) {
      if (text->empty()) continue;
      const auto ppm = ParsePercent(*text);
      if (!ppm) return tl::make_unexpected(ppm.error());
      *into = *ppm;
    }
    if (options.delay.empty()) continue;
    const auto delay = ParseDuration(options.delay);
    if (!delay) return tl::make_unexpected(delay.error());
    faults->delay_us = *delay;
  }
  return {};
}

// Workers are divided over the racks in their order; aggregators are plugged into the core.
Result<void> ApplyRackFlags(const UpOptions& options, const Given& given, Topology& topology) {
  if (given("--oversubscription")) topology.oversubscription = options.oversubscription;
  if (!given("--racks")) return {};
  size_t num_workers = 0, worker = 0;
  for (const Host& host : topology.hosts) num_workers += host.is_aggregator ? 0 : 1;
  const auto racks = static_cast<size_t>(options.racks);
  if (options.racks < 1 || racks > num_workers) {
    return Err(ErrorCode::kInvalidArgument,
               fmt::format("--racks {}: there are {} workers, and each rack has one at least", options.racks,
                           num_workers));
  }
  topology.racks.clear();
  for (Host& host : topology.hosts)
    host.rack = host.is_aggregator ? "" : fmt::format("r{}", worker++ * racks / num_workers + 1);
  return {};
}

Result<Topology> MakeTopology(const Globals& globals, const UpOptions& options, const Given& given) {
  Topology topology;
  const bool from_file = !options.topology_file.empty();
  if (from_file) {
    auto loaded = LoadTopology(options.topology_file);
    if (!loaded) return loaded;
    topology = std::move(*loaded);
  }
  if (!from_file || given("--workers") || given("--aggregators")) {
    if (options.workers < 1 || options.aggregators < 0) {
      return Err(ErrorCode::kInvalidArgument,
                 "a lab has at least one worker and no negative number of aggregators");
    }
    topology.hosts.clear();
    for (int i = 1; i <= options.workers; ++i) topology.hosts.push_back(Host{.name = fmt::format("w{}", i)});
    for (int i = 1; i <= options.aggregators; ++i) {
      topology.hosts.push_back(Host{.name = fmt::format("a{}", i), .is_aggregator = true});
    }
  }
  const auto rate = ParseRate(options.rate), aggregator_rate = ParseRate(options.aggregator_rate);
  if (!rate) return tl::make_unexpected(rate.error());
  if (!aggregator_rate) return tl::make_unexpected(aggregator_rate.error());
  for (Host& host : topology.hosts) {
    if (!from_file || given(host.is_aggregator ? "--agg-rate" : "--rate")) {
      host.rate_bps = host.is_aggregator ? *aggregator_rate : *rate;
    }
    if (auto r = ApplyFaultFlags(options, host); !r) return tl::make_unexpected(r.error());
  }
  if (auto r = ApplyRackFlags(options, given, topology); !r) return tl::make_unexpected(r.error());
  if (!from_file || given("--mtu")) topology.mtu = options.mtu;
  if (!from_file || given("--seed")) topology.seed = options.seed;
  if (options.ipv6) topology.ipv6 = true;
  if (options.priorities) topology.priorities = true;
  if (given("--queue")) topology.queue_kib = options.queue_kib;
  if (given("--mark")) topology.mark_kib = options.mark_kib;
  if (options.offload) topology.offload = true;
  if (!from_file || given("--name")) topology.name = globals.name;
  auto finished = Finish(std::move(topology));
  // Only now are all racks known by name.
  for (Rack& rack : finished ? finished->racks : std::vector<Rack>{}) {
    if (auto r = ApplyFaultFlags(options, rack); !r) return tl::make_unexpected(r.error());
  }
  return finished;
}

Result<void> MountBpffs() {
  struct statfs info;
  if (statfs(Paths::kBpffs, &info) == 0 && info.f_type == kBpffsMagic) return {};
  if (mount("bpffs", Paths::kBpffs, "bpf", 0, "mode=0700") == 0) return {};
  return tl::make_unexpected(ErrnoError(fmt::format("mount bpffs on {}", Paths::kBpffs), errno,
                                        "the kernel needs CONFIG_BPF_SYSCALL"));
}

Result<void> StartDaemons(const Paths& paths, const Topology& topology, bool quiet) {
  const auto program = FindDaemon();
  if (!program) return tl::make_unexpected(program.error());
  std::vector<ProcessId> ids;
  for (const auto& host : topology.hosts) {
    const auto id = StartHostDaemon(paths, topology, host, *program);
    if (!id) return tl::make_unexpected(id.error());
    ids.push_back(*id);
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const Host& host = topology.hosts[i];
    if (auto r = WaitUntilReady(paths, host, ids[i], kReadyTimeout, stop_requested); !r) return r;
    if (!quiet)
      fmt::print(stderr, "  {:<11} {:<13} mlnetd ready (pid {})\n", host.name, host.address, ids[i].pid);
  }
  return {};
}

// Everything between the creation of the lab's folder and its last state; the caller cleans up after an
// error.
Result<void> Build(const Paths& paths, State& state, bool quiet) {
  if (auto r = SaveState(paths, state); !r) return r;
  if (!quiet) fmt::print(stderr, "lab '{}': {} hosts\n", paths.lab, state.topology.hosts.size());
  if (auto r = MountBpffs(); !r) return r;
  if (auto r = BuildNetwork(paths, state.topology); !r) {
    const auto missing = MissingKernelFeatures();
    if (missing.empty()) return r;
    return Err(ErrorCode::kUnsupported, fmt::format("this kernel lacks {}", fmt::join(missing, ", ")),
               r.error().message);
  }
  if (auto r = SetPorts(paths, state.topology, XdpMode::kOn); !r) return r;
  if (stop_requested) return Err(ErrorCode::kCancelled, "interrupted");
  if (state.has_daemons) {
    if (auto r = StartDaemons(paths, state.topology, quiet); !r) return r;
  }
  // Faults last, so that a lossy lab comes up as surely as any other.
  if (auto r = ApplyFaults(paths, state.topology, nullptr); !r) return r;
  if (stop_requested) return Err(ErrorCode::kCancelled, "interrupted");
  state.is_ready = true;
  return SaveState(paths, state);
}

// The daemons' logs outlive a failed `up`; everything else of it goes.
Error CleanUp(const Paths& paths, const Topology& topology, Error error) {
  std::error_code ec;
  bool any = false;
  for (const auto& host : topology.hosts) {
    if (!fs::exists(paths.Log(host.name), ec)) continue;
    fs::create_directories(paths.FailedDir(), ec);
    fs::copy_file(paths.Log(host.name), paths.FailedDir() / (host.name + ".log"), ec);
    any = true;
  }
  if (any) error.message += fmt::format("\nlogs: {}", paths.FailedDir().string());
  if (auto r = TearDown(paths); !r)
    error.message += fmt::format("\nand cleaning up failed: {}", r.error().ToString());
  return error;
}

Result<void> Up(Globals& globals, const UpOptions& options, const Given& given) {
  State state;
  auto topology = MakeTopology(globals, options, given);
  if (!topology) return tl::make_unexpected(topology.error());
  if (auto r = RequireRoot(); !r) return r;
  state.topology = std::move(*topology);
  state.has_daemons = !options.no_daemons;
  const Paths paths(state.topology.name);
  std::error_code ec;
  fs::remove_all(paths.FailedDir(), ec);
  if (!fs::exists(paths.Dir(), ec) && AnythingLeft(paths)) {
    return Err(ErrorCode::kConflict, fmt::format("something is left of an earlier lab '{}'", paths.lab),
               fmt::format("remove it with: mlnet-lab down --name {}", paths.lab));
  }
  if (auto r = CreateDir(paths); !r) return r;
  const auto lock = LockLab(paths);
  if (!lock) return tl::make_unexpected(lock.error());
  for (int sig : {SIGINT, SIGTERM, SIGHUP}) signal(sig, [](int) { stop_requested = true; });
  if (auto r = Build(paths, state, globals.json); !r) {
    return tl::make_unexpected(CleanUp(paths, state.topology, r.error()));
  }
  PrintStatus(paths, state, globals.json);
  return {};
}

}  // namespace

void AddUpCommand(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<UpOptions>();
  auto* command = app.add_subcommand("up", "Start a lab: namespaces, links, and a mlnetd on every host");
  command->add_option("--workers", options->workers, "Worker hosts w1, w2, ...")->capture_default_str();
  command->add_option("--aggregators", options->aggregators, "Aggregator hosts a1, a2, ...")
      ->capture_default_str();
  command->add_option("--rate", options->rate, "Rate of each worker's link, each direction; 'unlimited'")
      ->capture_default_str();
  command->add_option("--agg-rate", options->aggregator_rate, "Rate of each aggregator's link")
      ->capture_default_str();
  command->add_option("--racks", options->racks, "Racks r1, r2, ... that the workers are divided over");
  command->add_option("--oversubscription", options->oversubscription,
                      "4: a rack's uplink to the core has a quarter of its hosts' rates; without, no limit");
  command->add_option("--mtu", options->mtu, "MTU of all links")->capture_default_str();
  command->add_option("--loss", options->loss, "Percent of frames lost, on every link and direction");
  command->add_option("--dup", options->duplicate, "Percent of frames duplicated");
  command->add_option("--reorder", options->reorder, "Percent of frames overtaken by later ones");
  command->add_option("--corrupt", options->corrupt, "Percent of frames with one bit flipped");
  command->add_option("--delay", options->delay, "One-way delay of each link, for example 2ms");
  command->add_option("--seed", options->seed, "Seed of the faults")->capture_default_str();
  command->add_option("--topology", options->topology_file, "Topology file (YAML); other flags override it");
  command->add_flag("--ipv6", options->ipv6, "Hosts have IPv6 addresses (fd77::1, ...) instead of IPv4 ones");
  command->add_flag("--priorities", options->priorities, "Links with a rate send frames by their DSCP, as switches can");
  command->add_option("--queue", options->queue_kib, "KiB that can wait in front of a port with a rate; else as much as all hosts can send at once");
  command->add_option("--mark", options->mark_kib, "KiB from which on such a queue marks frames instead of only growing (ECN)");
  command->add_flag("--offload", options->offload,
                    "What NICs and switches do in hardware costs this machine less: hosts of ranks keep segmentation offload, and frames of aggregators "
                    "pass the switch in XDP where no link has a rate or fault. Then only aggregators can sum, and a host has one rank");
  command->add_flag("--no-daemons", options->no_daemons, "Links only: start no mlnetd");
  const Given given = [command, &app](const char* flag) {
    return (std::string(flag) == "--name" ? app.count(flag) : command->count(flag)) > 0;
  };
  SetAction(command, globals, [&globals, options, given] { return Up(globals, *options, given); });
}

}  // namespace mlnet::lab
