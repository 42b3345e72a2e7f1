// SPDX-License-Identifier: Apache-2.0
// A real etcd of one member, on loopback, free ports and a folder of its own; gone with the test, even one that crashes.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "control/config.h"
#include "control/model.h"
#include "unit/temp_folder.h"

namespace mlnet::test {

class EtcdServer {
 public:
  /// `more`: further options of etcd. `client`: how one gets in; https where it names a ca. `host`: as in a URL.
  explicit EtcdServer(std::vector<std::string> more = {}, control::EtcdConfig client = {}, const std::string& host = "127.0.0.1");
  ~EtcdServer();

  const std::string& url() const { return url_; }
  /// A store of its own within it.
  control::EtcdConfig NewStore() const;

  void Signal(int signal);  // SIGKILL and SIGTERM: and waits for its end
  void Start();             // again, with the same data
  void WipeData();
  void UseClient(const control::EtcdConfig& client) { client_ = client; }
  std::string Log() const;

  /// POST /v3/`path`; what etcd answered.
  control::Json Post(const std::string& path, const control::Json& body) const;
  /// Keys that begin with `prefix`, with their values.
  std::vector<std::pair<std::string, std::string>> All(const std::string& prefix) const;
  void Put(const std::string& key, const std::string& value) const;

 private:
  bool IsUp() const;

  TempFolder folder_;
  std::vector<std::string> more_;
  control::EtcdConfig client_;
  std::string url_, peer_url_;
  pid_t pid_ = -1;
};

/// Started once per test program.
EtcdServer& SharedEtcd();

}  // namespace mlnet::test
