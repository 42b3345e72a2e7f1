// SPDX-License-Identifier: Apache-2.0
// A job's trees level by level, as operators see them: what goes into each node and comes out, what is sent again,
// and who keeps the others waiting. Out of the plan and of the counters that the hosts publish; pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "control/model.h"
#include "daemon/store.h"
#include "mlnet/job.h"

namespace mlnet::daemon {

/// A member of what a rank or host reports, which is theirs to choose: 0 for anything but a count.
uint64_t Count(const control::Json& body, const char* key);

/// What `source` ("rank 3", "host w1") reported last; nullptr: nothing.
const control::Json* BodyOf(const std::vector<Store::Counters>& counters, const std::string& source);

/// What a host publishes of its node in one tree, out of the program's counters: {tree, packets_in, packets_out, resends,
/// held, words_summed, lag}. `links` are those of its children, by child index.
control::Json NodeCounters(size_t tree, bool is_inner, const mlnet_stats& stats, const std::vector<mlnet_link>& links);

/// mlnet.levels/1. `only`: this tree alone, with the lag of every child; else of the slowest.
control::Json LevelsOf(const control::JobView& view, const std::vector<Store::Counters>& counters, std::optional<size_t> only);

/// How late each rank is at the nodes that it sends to, over all trees: [{rank, samples, mean_us}].
control::Json LagOfRanks(const control::JobView& view, const std::vector<Store::Counters>& counters);

/// A job's row of mlnet.top/1: totals of all nodes of all trees.
control::Json ActivityOf(const control::JobView& view, const std::vector<Store::Counters>& counters);

}  // namespace mlnet::daemon
