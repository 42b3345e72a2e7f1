// SPDX-License-Identifier: Apache-2.0
// What an earlier daemon of this host left in the kernel (DESIGN.md, "A restart").
#pragma once

#include "control/config.h"
#include "daemon/store.h"
#include "datapath/pins.h"
#include "datapath/program.h"

namespace mlnet::daemon {

struct Loaded {
  datapath::Program program;
  bool is_over;  // with the maps of an earlier daemon, and all that is in them
};

/// The program: over what an earlier daemon left where a job runs that needs it, else from scratch; then what stood on this host
/// has ended by name before anything of it is removed.
Result<Loaded> LoadProgram(const control::Config& config, Store& store, datapath::PinFolder& pins);

/// Ends what stands on this host, and removes what an earlier daemon left. kConflict: one is alive.
Result<void> CleanUp(const control::Config& config);

}  // namespace mlnet::daemon
