// SPDX-License-Identifier: Apache-2.0
// What a model's layers cost, as traces/record.py measured it: the input of `mlnet-lab layers`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mlnet/error.h"

namespace mlnet::perf {

struct TraceLayer {
  std::string name;
  uint64_t bytes = 0;  // of its gradients
  uint64_t forward_ns = 0;
  uint64_t backward_ns = 0;
  std::vector<uint32_t> needs;  // layers whose output it works on, each before it
};

/// In the order in which forward runs them.
struct Trace {
  std::string model;
  std::vector<TraceLayer> layers;

  uint64_t Bytes() const;
  uint64_t ComputeNs() const;
};

Result<Trace> ParseTrace(const nlohmann::json& json, const std::string& where);
Result<Trace> LoadTrace(const std::string& file);

/// Bytes and times divided alike, so that the shares of computing and sending stay what they are on a link of the same
/// rate. Bytes stay whole floats, one at least.
Trace Scaled(const Trace& trace, double divisor);

}  // namespace mlnet::perf
