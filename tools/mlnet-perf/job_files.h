// SPDX-License-Identifier: Apache-2.0
// Files by which many jobs start together and tell how far they were; each job's folder lies in one that all share.
#pragma once

#include <string>

#include "mlnet-perf/spec.h"

namespace mlnet::perf {

/// Made by a rank that has joined.
inline std::string ReadyFile(const Spec& spec, int rank) { return spec.dir + "/ready-" + std::to_string(rank); }
/// Made by the one who starts the jobs, when all ranks of all jobs have joined.
inline std::string GateFile(const Spec& spec) { return spec.dir + "/../gate"; }
/// Of rank 0: a line "NANOSECONDS BYTES" for each look at its counter; CLOCK_MONOTONIC.
inline std::string SamplesFile(const Spec& spec) { return spec.dir + "/samples"; }

}  // namespace mlnet::perf
