// SPDX-License-Identifier: Apache-2.0
// mlnetctl run in this process against a scripted daemon.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "mlnetctl/cli.h"
#include "unit/mlnetctl/fake_daemon.h"

namespace mlnet::ctl {

class Command : public testing::Test {
 protected:
  int Run(std::vector<std::string> args) {
    args.insert(args.begin(), {"--socket", daemon_.socket()});
    std::ostringstream out, err;
    const int code = RunCli(args, out, err, {});
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  /// As Run, after the daemon was started with one answer.
  template <typename Answer>
  int RunWith(const std::string& method, Answer answer, const std::vector<std::string>& args) {
    daemon_.On(method, std::move(answer));
    daemon_.Start();
    return Run(args);
  }

  FakeDaemon daemon_;
  std::string out_, err_;
};

}  // namespace mlnet::ctl
