// SPDX-License-Identifier: Apache-2.0
// The fingerprint of a collective: what must be equal on all ranks, in 32 bits.
// Why: a slot that is asked to add packets of two different collectives refuses the second by it.
#pragma once

#include <cstdint>
#include <string>

#include "collective_spec.h"

namespace mlnet::worker {

/// Of kind, dtype, op, wire type, element count and root; never 0.
uint32_t Fingerprint(const CollectiveSpec& spec);
/// Of the `repair`-th repair of a collective.
/// Of what one tree gets of a call: elements or bytes `first`.. of it.
uint32_t PartFingerprint(uint32_t call, size_t first, size_t count);
uint32_t RepairFingerprint(uint32_t collective, uint64_t ordinal, size_t repair, uint64_t packets);
/// A number that differs for each of its arguments: the seed of stochastic rounding.
uint64_t SeedOf(uint64_t job_epoch, int traffic_class, uint64_t ordinal, int rank);

/// "all_reduce float32 sum count=1000": what the fingerprint stands for, for people.
std::string DescribeSpec(const CollectiveSpec& spec);

}  // namespace mlnet::worker
