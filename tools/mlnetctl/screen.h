// SPDX-License-Identifier: Apache-2.0
// A terminal that shows one page again and again, and listens for the end: q, Ctrl-C, SIGTERM, a closed terminal.
#pragma once

#include <signal.h>
#include <termios.h>

#include <chrono>
#include <optional>
#include <ostream>
#include <string>

#include "base/fd.h"

namespace mlnet::ctl {

class Screen {
 public:
  explicit Screen(std::ostream& out);
  ~Screen();  // the terminal is as it was
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  /// `page` instead of what is shown.
  void Show(const std::string& page);
  /// False: the user wants to leave.
  bool Wait(std::chrono::milliseconds time);

 private:
  std::ostream& out_;
  Fd signals_;
  sigset_t before_{};
  std::optional<termios> terminal_;  // as it was; none: keys do not come from a terminal
};

}  // namespace mlnet::ctl
