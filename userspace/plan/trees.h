// SPDX-License-Identifier: Apache-2.0
// Who is below whom, for each shape. Slow links do not carry others: hosts that lead are taken fastest first, and where
// the lead goes round, only those at least half as fast as the fastest take it (MLfabric's R4).
#pragma once

#include "plan/site.h"

namespace mlnet::plan {

/// One way to build a shape: trees that share the job, their weights still to be found.
using Variant = std::vector<Tree>;

/// All ways worth predicting; the error says why this cluster cannot have the shape.
Result<std::vector<Variant>> VariantsOf(const Site& site, Shape shape);

}  // namespace mlnet::plan
