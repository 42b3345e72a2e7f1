// SPDX-License-Identifier: Apache-2.0
// One function per noun: adds its commands to the tree and binds them to the context.
#pragma once

#include <CLI/CLI.hpp>

#include "mlnetctl/context.h"

namespace mlnet::ctl {

void AddIface(CLI::App& app, Context& context);
void AddJob(CLI::App& app, Context& context);
void AddPlan(CLI::App& app, Context& context);
void AddStatus(CLI::App& app, Context& context);
void AddStats(CLI::App& app, Context& context);
void AddProbe(CLI::App& app, Context& context);
void AddVersion(CLI::App& app, Context& context);
void AddCompletion(CLI::App& app, Context& context);

/// Tables that more than one command prints.
Table IfaceTable(const Json& ifaces);
Table JobTable(const Json& jobs);
/// Verdict counters above 0, largest first; all of them if `with_zero`.
Table VerdictTable(const Json& verdicts, bool with_zero);

}  // namespace mlnet::ctl
