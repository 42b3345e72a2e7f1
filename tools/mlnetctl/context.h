// SPDX-License-Identifier: Apache-2.0
// What every command shares: the global options, the two streams, and calls to the daemon.
// Data goes to `out`, talk and errors to `err`; nothing else in mlnetctl writes anywhere.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

#include "mlnetctl/exit_code.h"
#include "mlnetctl/output.h"
#include "rpc/client.h"
#include "rpc/message.h"

namespace mlnet::ctl {

struct GlobalOptions {
  bool json = false;
  bool pretty = false;
  bool quiet = false;
  int verbose = 0;
  std::string socket;
  double timeout_s = 10.0;
  bool use_color = false;
  bool is_terminal = false;  // where `out` goes
};

class Context {
 public:
  Context(std::ostream& out, std::ostream& err) : out_(out), err_(err) {}

  GlobalOptions options;
  /// Set by the command that was chosen; run after the command line has been understood.
  std::function<int()> action;
  /// Where kernel_checks.h finds /proc and /sys; tests put a tree of their own here.
  std::string kernel_root;

  std::ostream& out() { return out_; }

  /// One request to the daemon; connects on first use.
  Result<Json> Call(const std::string& method, const Json& params = Json::object());
  /// The daemon could be reached (true before the first call).
  bool is_reachable() const { return is_reachable_; }
  /// The next Call connects anew.
  void Disconnect() { client_.reset(); }

  void PrintJson(const Json& value);
  /// Talk for a human: silent with -q and in JSON mode.
  void Say(const std::string& text);
  /// Shown with -v only.
  void Detail(const std::string& text);
  /// Shows the error, returns the exit code that belongs to it.
  int Fail(const Error& error);

 private:
  std::ostream& out_;
  std::ostream& err_;
  std::optional<rpc::Client> client_;
  bool is_reachable_ = true;
};

/// An error on `err`, as JSON or for a human.
void PrintError(std::ostream& err, const GlobalOptions& options, const std::string& code,
                const std::string& message, const std::string& hint);

}  // namespace mlnet::ctl
