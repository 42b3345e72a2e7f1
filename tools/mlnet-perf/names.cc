// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/names.h"

#include <algorithm>
#include <iterator>

namespace mlnet::perf {
namespace {

// By the value of the enumerator.
constexpr const char* kOps[] = {"sum", "min", "max"};
constexpr const char* kWires[] = {"int32", "int16", "int8"};

template <typename Enum, size_t N>
std::optional<Enum> Find(const char* const (&names)[N], const std::string& name) {
  const auto* found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<Enum>(found - std::begin(names));
}

}  // namespace

const char* OpName(ReduceOp op) { return kOps[static_cast<size_t>(op)]; }
std::optional<ReduceOp> FindOp(const std::string& name) { return Find<ReduceOp>(kOps, name); }
std::vector<std::string> OpNames() { return {std::begin(kOps), std::end(kOps)}; }

const char* WireName(WireType wire) { return kWires[static_cast<size_t>(wire)]; }
std::optional<WireType> FindWire(const std::string& name) { return Find<WireType>(kWires, name); }
std::vector<std::string> WireNames() { return {std::begin(kWires), std::end(kWires)}; }

}  // namespace mlnet::perf
