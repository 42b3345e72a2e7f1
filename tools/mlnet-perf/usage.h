// SPDX-License-Identifier: Apache-2.0
// What collectives cost beside time: processor time of this rank and of the whole machine, and memory.
// Why of the machine, too: a packet that a program of the kernel handles for another host is paid for by whoever
// happens to run then. What others do on the machine is in it.
#pragma once

#include <cstdint>

namespace mlnet::perf {

struct CpuTime {
  uint64_t user_ns = 0;     // of this process
  uint64_t system_ns = 0;   // of this process; softirqs that ran in its name are in it
  uint64_t busy_ns = 0;     // of all processors, whoever ran
  uint64_t softirq_ns = 0;  // of that, in interrupts and softirqs

  CpuTime& operator+=(const CpuTime& other);
  CpuTime operator-(const CpuTime& earlier) const;
  bool operator==(const CpuTime&) const = default;
};

/// `with_machine`: one rank is enough for the machine; the others have 0 there.
CpuTime ReadCpuTime(bool with_machine);

/// The most memory that was resident at once since ResetPeakMemory, whatever maps it; 0 if the kernel does not say.
uint64_t PeakMemoryBytes();
void ResetPeakMemory();

}  // namespace mlnet::perf
