// SPDX-License-Identifier: Apache-2.0
// mlnet-lab fault set|show|clear: disturb links while traffic flows. And the hidden subcommand delay-line.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "commands.h"
#include "delay_line.h"
#include "faults.h"
#include "ports.h"
#include "units.h"

namespace mlnet::lab {
namespace {

struct FaultOptions {
  std::string host = "all";
  std::string direction = "both";
  std::string loss, duplicate, reorder, corrupt, delay;
  std::optional<uint64_t> seed;
};

Json LinkJson(const Faults& faults, const lab_link& link) {
  Json j = FaultsToJson(faults);
  j.update({{"frames", link.frames},
            {"lost", link.lost},
            {"duplicated", link.duplicated},
            {"reordered", link.reordered},
            {"corrupted", link.corrupted},
            {"held", link.held},
            {"marked", link.marked}});
  return j;
}

Result<void> Show(const Globals& globals, const Paths& paths, const Topology& topology,
                  const std::string& only) {
  Json hosts = Json::array(), racks = Json::array();
  const auto links = LinksOf(topology);
  for (size_t i = 0; i < links.size(); ++i) {
    const Link& link = links[i];
    if (only != "all" && only != link.name) continue;
    const auto tx = ReadLink(paths, i, LAB_TX), rx = ReadLink(paths, i, LAB_RX);
    if (!tx) return tl::make_unexpected(tx.error());
    if (!rx) return tl::make_unexpected(rx.error());
    (i < topology.hosts.size() ? hosts : racks)
        .push_back({{"name", link.name}, {"tx", LinkJson(link.tx, *tx)}, {"rx", LinkJson(link.rx, *rx)}});
  }
  if (globals.json) {
    fmt::print("{}\n", Json{{"schema", "mlnet-lab.fault/1"},
                            {"name", paths.lab},
                            {"seed", topology.seed},
                            {"hosts", hosts},
                            {"racks", racks}}
                           .dump());
    return {};
  }
  fmt::print("{:<12}{:<4}{:>8}{:>8}{:>9}{:>9}{:>10}{:>12}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}\n", "LINK", "DIR", "LOSS%",
             "DUP%", "REORDER%", "CORRUPT%", "DELAY_US", "FRAMES", "LOST", "DUP", "REORD", "CORR", "HELD", "MARKED");
  for (const auto& rack : racks) hosts.push_back(rack);
  for (const auto& h : hosts) {
    for (const char* dir : {"tx", "rx"}) {
      const Json& d = h[dir];
      const auto percent = [&d](const char* key) { return d[key].get<double>() / 10'000; };
      const auto number = [&d](const char* key) { return d[key].get<uint64_t>(); };
      fmt::print("{:<12}{:<4}{:>8}{:>8}{:>9}{:>9}{:>10}{:>12}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}\n",
                 h["name"].get<std::string>(), dir, percent("loss_ppm"), percent("duplicate_ppm"),
                 percent("reorder_ppm"), percent("corrupt_ppm"), number("delay_us"), number("frames"),
                 number("lost"), number("duplicated"), number("reordered"), number("corrupted"),
                 number("held"), number("marked"));
    }
  }
  return {};
}

// Only the kinds that were named change.
Result<void> Merge(const FaultOptions& options, Faults& faults) {
  for (const auto& [text, into] : {std::pair{&options.loss, &faults.loss_ppm},
                                   {&options.duplicate, &faults.duplicate_ppm},
                                   {&options.reorder, &faults.reorder_ppm},
                                   {&options.corrupt, &faults.corrupt_ppm}}) {
    if (text->empty()) continue;
    const auto ppm = ParsePercent(*text);
    if (!ppm) return tl::make_unexpected(ppm.error());
    *into = *ppm;
  }
  if (options.delay.empty()) return {};
  const auto delay = ParseDuration(options.delay);
  if (!delay) return tl::make_unexpected(delay.error());
  faults.delay_us = *delay;
  return {};
}

Result<void> CheckLink(const State& state, const std::string& name) {
  const auto& racks = state.topology.racks;
  const bool is_rack = std::any_of(racks.begin(), racks.end(), [&](const Rack& rack) { return rack.name == name; });
  if (name == "all" || is_rack) return {};
  if (auto host = FindHost(state, name); !host) return tl::make_unexpected(host.error());
  return {};
}

// set and clear: `change` is applied to the chosen directions of the chosen links.
Result<void> Change(const Globals& globals, const FaultOptions& options,
                    const std::function<Result<void>(Faults&)>& change) {
  if (auto r = RequireRoot(); !r) return r;
  const Paths paths(globals.name);
  auto state = LoadReadyState(paths);
  if (!state) return tl::make_unexpected(state.error());
  const auto lock = LockLab(paths);
  if (!lock) return tl::make_unexpected(lock.error());
  if (auto r = CheckLink(*state, options.host); !r) return r;
  std::vector<std::string> touched;
  const auto change_link = [&](auto& link) -> Result<void> {
    if (options.host != "all" && options.host != link.name) return {};
    touched.push_back(link.name);
    for (Faults* faults : {&link.tx, &link.rx}) {
      if (options.direction == (faults == &link.tx ? "rx" : "tx")) continue;
      if (auto r = change(*faults); !r) return r;
    }
    return {};
  };
  for (Host& host : state->topology.hosts) {
    if (auto r = change_link(host); !r) return r;
  }
  for (Rack& rack : state->topology.racks) {
    if (auto r = change_link(rack); !r) return r;
  }
  if (options.seed) state->topology.seed = *options.seed;
  if (auto r = SetPorts(paths, state->topology, state->xdp); !r) return r;
  if (auto r = ApplyFaults(paths, state->topology, options.seed ? nullptr : &touched); !r) return r;
  if (auto r = SaveState(paths, *state); !r) return r;
  return Show(globals, paths, state->topology, options.host);
}

Result<void> ShowCommand(const Globals& globals, const std::string& host) {
  const Paths paths(globals.name);
  const auto state = LoadReadyState(paths);
  if (!state) return tl::make_unexpected(state.error());
  if (auto r = CheckLink(*state, host); !r) return r;
  return Show(globals, paths, state->topology, host);
}

void AddTarget(CLI::App* command, FaultOptions& options) {
  command->add_option("host", options.host, "Host, rack (its uplink), or 'all'")->capture_default_str();
  command->add_option("--dir", options.direction, "What it sends (tx), receives (rx), or both")
      ->check(CLI::IsMember({"tx", "rx", "both"}))
      ->capture_default_str();
}

}  // namespace

void AddFaultCommand(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<FaultOptions>();
  auto* fault = app.add_subcommand("fault", "Disturb links: loss, duplicates, reordering, corruption, delay");
  fault->require_subcommand(1);
  auto* set = fault->add_subcommand("set", "Set faults; kinds that are not named stay as they are");
  AddTarget(set, *options);
  set->add_option("--loss", options->loss, "Percent of frames lost");
  set->add_option("--dup", options->duplicate, "Percent of frames duplicated");
  set->add_option("--reorder", options->reorder, "Percent of frames overtaken by later ones");
  set->add_option("--corrupt", options->corrupt, "Percent of frames with one bit flipped");
  set->add_option("--delay", options->delay, "One-way delay, for example 2ms");
  set->add_option("--seed", options->seed, "New seed; all random sequences begin anew");
  SetAction(set, globals, [&globals, options] {
    return Change(globals, *options, [options](Faults& faults) { return Merge(*options, faults); });
  });
  auto* clear = fault->add_subcommand("clear", "Take all faults away");
  AddTarget(clear, *options);
  SetAction(clear, globals, [&globals, options] {
    return Change(globals, *options, [](Faults& faults) {
      faults = {};
      return Result<void>{};
    });
  });
  auto* show = fault->add_subcommand("show", "Show faults and what they did so far");
  show->add_option("host", options->host, "Host, rack, or 'all'")->capture_default_str();
  SetAction(show, globals, [&globals, options] { return ShowCommand(globals, options->host); });

  // Started by the lab itself; group "" hides it from the help.
  auto* line = app.add_subcommand("delay-line", "The lab's delay line")->group("");
  SetAction(line, globals, [&globals]() -> Result<void> {
    const Paths paths(globals.name);
    const auto state = LoadState(paths);
    if (!state) return tl::make_unexpected(state.error());
    return RunDelayLine(paths, LinksOf(state->topology).size());
  });
}

}  // namespace mlnet::lab
