// SPDX-License-Identifier: Apache-2.0
#include "mlnetctl/screen.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>

namespace mlnet::ctl {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kEnter = "\033[?1049h\033[?25l";  // the other screen, no cursor
constexpr const char* kLeave = "\033[?25h\033[?1049l";
constexpr const char* kTop = "\033[H";
constexpr const char* kClearLine = "\033[K";
constexpr const char* kClearRest = "\033[J";

}  // namespace

Screen::Screen(std::ostream& out) : out_(out) {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, signal);
  ::sigprocmask(SIG_BLOCK, &ends, &before_);
  signals_ = Fd(::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  termios now;
  if (::tcgetattr(STDIN_FILENO, &now) == 0) {
    terminal_ = now;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &now);
  }
  out_ << kEnter << std::flush;
}

Screen::~Screen() {
  out_ << kLeave << std::flush;
  if (terminal_) ::tcsetattr(STDIN_FILENO, TCSANOW, &*terminal_);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

void Screen::Show(const std::string& page) {
  out_ << kTop;
  for (const char c : page) {
    if (c == '\n') out_ << kClearLine;
    out_ << c;
  }
  out_ << kClearRest << std::flush;
}

bool Screen::Wait(milliseconds time) {
  const auto deadline = steady_clock::now() + time;
  pollfd fds[] = {{signals_.get(), POLLIN, 0}, {terminal_ ? STDIN_FILENO : -1, POLLIN, 0}};
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    const int n = ::poll(fds, 2, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (n < 0) continue;
    if (n == 0) return true;
    if (fds[0].revents != 0) {
      signalfd_siginfo signal;  // taken: else it would end the process, and not in order
      while (::read(signals_.get(), &signal, sizeof(signal)) > 0) continue;
      return false;
    }
    char key = 'q';  // what a terminal that is gone counts as
    if (::read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q') return false;
  }
}

}  // namespace mlnet::ctl
