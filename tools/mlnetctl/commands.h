// SPDX-License-Identifier: Apache-2.0
// One function per noun: adds its commands to the tree and binds them to the context.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "mlnetctl/context.h"

namespace mlnet::ctl {

void AddIface(CLI::App& app, Context& context);
void AddJob(CLI::App& app, Context& context);
void AddPlan(CLI::App& app, Context& context);
void AddQos(CLI::App& app, Context& context);
void AddStatus(CLI::App& app, Context& context);
void AddStats(CLI::App& app, Context& context);
void AddTop(CLI::App& app, Context& context);
void AddTrace(CLI::App& app, Context& context);
void AddProbe(CLI::App& app, Context& context);
void AddVersion(CLI::App& app, Context& context);
void AddCompletion(CLI::App& app, Context& context);

/// Tables that more than one command prints.
Table IfaceTable(const Json& ifaces);
Table JobTable(const Json& jobs);
Tone ToneOfState(const std::string& state);
/// Verdict counters above 0, largest first; all of them if `with_zero`.
Table VerdictTable(const Json& verdicts, bool with_zero);

/// What `stats JOB --levels` does; `tree`: of this one alone, with every child.
int ShowLevels(Context& context, const std::string& job, std::optional<int> tree);

}  // namespace mlnet::ctl
