// SPDX-License-Identifier: Apache-2.0
// The whole of mlnetctl as a function: main() and the tests call the same thing.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace mlnet::ctl {

struct Environment {
  bool out_is_terminal = false;
  bool no_color = false;      // $NO_COLOR is set
  std::string kernel_root{};  // see Context
};

/// `args` without the program's name. Returns the exit code.
int RunCli(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
           const Environment& environment);

}  // namespace mlnet::ctl
