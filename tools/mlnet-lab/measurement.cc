// SPDX-License-Identifier: Apache-2.0
#include "measurement.h"

namespace mlnet::lab {
namespace {

std::atomic<bool> g_stop{false};  // a handler has nothing else to go by

}  // namespace

Result<Measurement> BeginMeasurement(const Globals& globals, const std::string& name) {
  if (auto ok = RequireRoot(); !ok) return tl::make_unexpected(ok.error());
  const Paths paths(globals.name);
  auto state = LoadReadyState(paths);
  if (!state) return tl::make_unexpected(state.error());
  if (!state->has_daemons) {
    return Err(ErrorCode::kUnavailable, "lab '" + paths.lab + "' runs no daemons", "mlnet-lab up without --no-daemons");
  }
  auto folder = WorkFolder::Create(paths, name);
  if (!folder) return tl::make_unexpected(folder.error());
  std::vector<Host> workers = WorkersOf(state->topology);
  return Measurement{paths, std::move(*state), std::move(workers), std::move(*folder)};
}

StopOnSignal::StopOnSignal() {
  g_stop = false;
  struct sigaction action {};
  action.sa_handler = [](int) { g_stop.store(true); };
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
}

StopOnSignal::~StopOnSignal() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
}

std::atomic<bool>& StopOnSignal::flag() { return g_stop; }

}  // namespace mlnet::lab
