// SPDX-License-Identifier: Apache-2.0
// mlnetctl: the operator's command line. New here? cli.cc builds the command tree; one file per noun.
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "mlnetctl/cli.h"

int main(int argc, char** argv) {
  mlnet::ctl::Environment environment;
  environment.out_is_terminal = isatty(STDOUT_FILENO) != 0;
  environment.no_color = std::getenv("NO_COLOR") != nullptr;
  return mlnet::ctl::RunCli({argv + 1, argv + argc}, std::cout, std::cerr, environment);
}
