// SPDX-License-Identifier: Apache-2.0
// How the ranks of a process group become one mlnet job: the name of the job goes through torch's own store.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "device_queue.h"
#include "torch_compat.h"

namespace mlnet::torch_backend {

struct Membership {
  std::string job;
  std::unique_ptr<CallQueue> comm;
};

/// Of the job; the same on all ranks.
struct JobOptions {
  int classes = 0;   // traffic classes; 0: as mlnetd is configured
  bool mac = false;  // its packets carry a tag
};

/// Joins the job of this process group; throws std::runtime_error with libmlnet's message and hint.
/// Rank 0 makes a name that nobody has used before ($MLNET_JOB is its prefix), so a restart of the same
/// training never meets what is left of the one before.
Membership JoinThroughStore(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout, const JobOptions& job);

}  // namespace mlnet::torch_backend
