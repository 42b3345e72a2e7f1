// SPDX-License-Identifier: Apache-2.0
// Random collectives whose results can be told beforehand, without the code under test.
#pragma once

#include <memory>
#include <random>
#include <string>

#include "sim/sim_calls.h"

namespace mlnet::sim {

/// One collective of all ranks: its buffers, its specs, what it must give.
class SoakCall {
 public:
  virtual ~SoakCall() = default;
  virtual worker::CollectiveSpec SpecOf(int rank) = 0;
  /// Empty when all ranks have what they should.
  virtual std::string Check() const = 0;
  virtual size_t elements() const = 0;
  int traffic_class = 0;
  size_t block_bytes = 128;  // of lanes under one bound
};

/// A kind, type, operation, wire type and size by chance.
std::unique_ptr<SoakCall> RandomCall(int ranks, std::mt19937_64& random);

}  // namespace mlnet::sim
