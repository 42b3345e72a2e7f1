// SPDX-License-Identifier: Apache-2.0
// What the ranks of `mlnet-lab layers` do in one turn: tensors, times, and the policy by which the scheduler's core sends
// them. Made once, by the lab, from a trace and the rate that was measured; every rank reads the same file.
#pragma once

#include <string>
#include <vector>

#include "mlnet-perf/trace.h"
#include "schedule/layers.h"
#include "schedule/policy.h"

namespace mlnet::perf {

struct PlannedTensor {
  uint64_t count = 0;  // floats
  uint32_t priority = 0;
  uint64_t forward_ns = 0;
  uint64_t backward_ns = 0;
};

struct LayersPlan {
  schedule::Policy policy;
  std::vector<PlannedTensor> tensors;  // in the order of forward
  int rate_calls = 0;                  // sums of the whole model in one piece, timed, before the iterations
  int warmup = 0;                      // iterations that do not count
  int iterations = 0;
};

struct PolicyOptions {
  uint64_t bytes_per_s = 1;      // payload of one class alone
  uint64_t partition_bytes = 0;  // of bytescheduler; P3 has its own. 0: half the credit
  uint64_t credit_bytes = 0;     // of all but fifo; p3 has two slices at least. 0: what is sent in 20 ms, or 200 KB
};

/// fifo, layers, p3, bytescheduler, tac.
std::vector<std::string> PolicyNames();

/// Priorities and policy of that name.
LayersPlan MakePlan(const Trace& trace, const std::string& policy, const PolicyOptions& options);

/// The trace as a timeline on a link of that payload rate.
std::vector<schedule::Layer> LayersAt(const Trace& trace, uint64_t bytes_per_s);

/// By layer: its place in TAC's order. What is received is each layer's sum, what waits for it is the layer's forward.
std::vector<uint32_t> TacPlaces(const Trace& trace, uint64_t bytes_per_s);

Result<void> SavePlan(const std::string& file, const LayersPlan& plan);
Result<LayersPlan> LoadPlan(const std::string& file);

}  // namespace mlnet::perf
