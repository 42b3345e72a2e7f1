// SPDX-License-Identifier: Apache-2.0
// What this machine offers to mlnet, read from /proc and /sys only: works without the daemon, without
// libbpf and without privileges.
#pragma once

#include <string>
#include <vector>

#include "mlnetctl/exit_code.h"

namespace mlnet::ctl {

struct Check {
  std::string name;  // as in mlnet.probe/1
  bool is_ok = false;
  std::string detail;                     // what was found
  std::string hint;                       // what to do; empty when ok
  ExitCode exit_code = kExitUnsupported;  // what a failed check means
};

/// "6.1.0-18-amd64", or empty.
std::string KernelRelease(const std::string& root);

/// All checks in a fixed order. `root` is put in front of every path; empty for the real machine.
std::vector<Check> CheckKernel(const std::string& root);

}  // namespace mlnet::ctl
