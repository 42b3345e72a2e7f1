// SPDX-License-Identifier: Apache-2.0
#include "perf_traffic.h"

#include <fstream>
#include <sstream>

namespace mlnet::lab {
namespace {

// First line of /proc/stat: user nice system idle iowait irq softirq steal.
void ReadCpu(Snapshot& snapshot) {
  std::ifstream file("/proc/stat");
  std::string line, name;
  std::getline(file, line);
  std::istringstream fields(line);
  fields >> name;
  uint64_t ticks = 0;
  for (int i = 0; i < 8 && fields >> ticks; ++i) {
    const bool is_idle = i == 3 || i == 4;
    snapshot.cpu_total += ticks;
    snapshot.cpu_busy += is_idle ? 0 : ticks;
  }
}

}  // namespace

Result<Snapshot> TakeSnapshot(const Paths& paths) {
  Snapshot snapshot;
  auto links = ReadTraffic(paths);
  if (!links) return tl::make_unexpected(links.error());
  snapshot.links = std::move(*links);
  ReadCpu(snapshot);
  return snapshot;
}

void Spent::Add(const Snapshot& before, const Snapshot& after, const std::vector<Rack>& racks) {
  for (const auto& [name, now] : after.links) {
    const auto then = before.links.find(name);
    if (then == before.links.end()) continue;
    LinkBytes& link = links[name];
    link.rx += now.rx.bytes - then->second.rx.bytes;
    if (now.tx && then->second.tx) link.tx = link.tx.value_or(0) + now.tx->bytes - then->second.tx->bytes;
  }
  core_bytes = 0;
  for (const Rack& rack : racks) core_bytes += links[rack.name].tx.value_or(0);
  cpu_busy += after.cpu_busy - before.cpu_busy;
  cpu_total += after.cpu_total - before.cpu_total;
}

double Spent::CpuPercent() const {
  return cpu_total == 0 ? 0 : 100.0 * static_cast<double>(cpu_busy) / static_cast<double>(cpu_total);
}

}  // namespace mlnet::lab
