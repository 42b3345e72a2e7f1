// SPDX-License-Identifier: Apache-2.0
// The fingerprint of a collective: what must be equal on all ranks, in 32 bits.
// Why: a slot that is asked to add packets of two different collectives refuses the second by it.
#pragma once

#include <cstdint>
#include <string>

#include "partition.h"

namespace mlnet::worker {

/// Of kind, dtype, op, element count and root; never 0.
uint32_t Fingerprint(const CollectiveSpec& spec);

/// "all_reduce float32 sum count=1000": what the fingerprint stands for, for people.
std::string DescribeSpec(const CollectiveSpec& spec);

}  // namespace mlnet::worker
