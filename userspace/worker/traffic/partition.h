// SPDX-License-Identifier: Apache-2.0
// Stage 1 of the tensor path: which part of a call goes through which tree.
// Why: each tree has a root of its own, so the parts of a large tensor are summed on several hosts at once.
// Invariants: (1) the parts are a pure function of the call, its place in the order and the weights, so all
// ranks cut alike; (2) they start on whole packets, and so on block borders: the bits of the result are those
// of any other cut.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective_spec.h"

namespace mlnet::worker {

struct Part {
  size_t tree = 0;  // index into the job's trees
  CollectiveSpec spec;
};

/// `weights`: a tree's share of a large call, any scale, not all 0. `blocks`: of a full packet. `ordinal`: of
/// the call in its class; small calls go to one tree each, in turn.
std::vector<Part> Partition(const CollectiveSpec& spec, std::span<const uint32_t> weights, uint32_t blocks,
                            uint64_t ordinal);

}  // namespace mlnet::worker
