// SPDX-License-Identifier: Apache-2.0
// A barrier that names who is missing: for finding bugs in a training, not for speed, so it goes over torch's
// store, which works whatever state the data path is in. The texts are those of torch's own.
#include <algorithm>
#include <stdexcept>

#include "process_group.h"

namespace mlnet::torch_backend {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

bool WaitFor(c10d::Store& store, const std::string& key, Clock::time_point end) {
  const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
  try {
    store.wait({key}, std::max(left, milliseconds(1)));
    return true;
  } catch (const std::exception&) {
    return false;  // stores differ in what they throw when the time is over
  }
}

std::string Names(const std::vector<int>& ranks) {
  std::string names = ranks.size() == 1 ? "Rank " : "Ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) names += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return names;
}

std::string TimedOut(milliseconds timeout) {
  return "Rank 0 timed out in monitoredBarrier after " + std::to_string(timeout.count()) + " ms";
}

// Rank 0: gathers all, or says who did not come.
void Collect(c10d::Store& store, const std::string& prefix, int size, milliseconds timeout, bool wait_all_ranks) {
  const Clock::time_point end = Clock::now() + timeout;
  std::vector<int> missing;
  for (int rank = 1; rank < size; ++rank) {
    if (Clock::now() >= end && !wait_all_ranks) {
      const std::string text = TimedOut(timeout);
      store.set(prefix + "done", Bytes(text));
      throw std::runtime_error("mlnet: " + text);
    }
    if (WaitFor(store, prefix + std::to_string(rank), end)) continue;
    missing.push_back(rank);
    if (!wait_all_ranks) break;
  }
  if (missing.empty()) {
    store.set(prefix + "done", Bytes("ok"));
    return;
  }
  const std::string text = Names(missing) + " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) + " ms";
  store.set(prefix + "done", Bytes(text));
  throw std::runtime_error("mlnet: [Rank 0]: " + text);
}

void Report(c10d::Store& store, const std::string& prefix, int rank, milliseconds timeout) {
  store.set(prefix + std::to_string(rank), Bytes("here"));
  const std::string self = "mlnet: Rank " + std::to_string(rank) +
                           " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0";
  // Rank 0 may use its whole time before it knows; what it says then is worth a moment.
  if (!WaitFor(store, prefix + "done", Clock::now() + timeout + timeout / 2)) {
    throw std::runtime_error(self + ": " + TimedOut(timeout));
  }
  const std::vector<uint8_t> answer = store.get(prefix + "done");
  const std::string text(answer.begin(), answer.end());
  if (text != "ok") throw std::runtime_error(self + ": " + text);
}

}  // namespace

void ProcessGroupMlnet::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  constexpr milliseconds kDefault{300'000};
  const milliseconds timeout = opts.timeout.count() >= 0 ? milliseconds(opts.timeout) : kDefault;
  const std::string prefix = "mlnet/monitored/" + std::to_string(monitored_barriers_++) + "/";
  if (getRank() == 0) Collect(*store_, prefix, getSize(), timeout, wait_all_ranks);
  else Report(*store_, prefix, getRank(), timeout);
}

}  // namespace mlnet::torch_backend
