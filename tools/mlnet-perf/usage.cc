// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

namespace mlnet::perf {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;

uint64_t Ns(const timeval& time) {
  return static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<uint64_t>(time.tv_usec) * 1000;
}

// First line of /proc/stat, in ticks.
void ReadMachine(CpuTime& time) {
  enum Field { kUser, kNice, kSystem, kIdle, kIoWait, kIrq, kSoftirq, kSteal, kFields };
  std::ifstream file("/proc/stat");
  std::string name;
  file >> name;
  std::array<uint64_t, kFields> ticks{};
  for (uint64_t& value : ticks) file >> value;
  const uint64_t tick_ns = kNsPerSecond / static_cast<uint64_t>(::sysconf(_SC_CLK_TCK));
  time.softirq_ns = (ticks[kIrq] + ticks[kSoftirq]) * tick_ns;
  time.busy_ns = (ticks[kUser] + ticks[kNice] + ticks[kSystem]) * tick_ns + time.softirq_ns;
}

}  // namespace

CpuTime& CpuTime::operator+=(const CpuTime& other) {
  user_ns += other.user_ns;
  system_ns += other.system_ns;
  busy_ns += other.busy_ns;
  softirq_ns += other.softirq_ns;
  return *this;
}

CpuTime CpuTime::operator-(const CpuTime& earlier) const {
  return {user_ns - earlier.user_ns, system_ns - earlier.system_ns, busy_ns - earlier.busy_ns,
          softirq_ns - earlier.softirq_ns};
}

CpuTime ReadCpuTime(bool with_machine) {
  CpuTime time;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  time.user_ns = Ns(usage.ru_utime);
  time.system_ns = Ns(usage.ru_stime);
  if (with_machine) ReadMachine(time);
  return time;
}

uint64_t PeakMemoryBytes() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    uint64_t kilobytes = 0;
    if (word == "VmHWM:" && file >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

void ResetPeakMemory() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace mlnet::perf
