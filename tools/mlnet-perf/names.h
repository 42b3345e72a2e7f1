// SPDX-License-Identifier: Apache-2.0
// Names of operations and wire types, as the command line, the spec file and the results have them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mlnet/communicator.h"

namespace mlnet::perf {

const char* OpName(ReduceOp op);
std::optional<ReduceOp> FindOp(const std::string& name);
std::vector<std::string> OpNames();

const char* WireName(WireType wire);
std::optional<WireType> FindWire(const std::string& name);
std::vector<std::string> WireNames();

}  // namespace mlnet::perf
