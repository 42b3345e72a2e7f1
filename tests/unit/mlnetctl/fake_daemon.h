// SPDX-License-Identifier: Apache-2.0
// A daemon that answers from a script, behind the real RPC server on a socket of its own.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "rpc/server.h"

namespace mlnet::ctl {

using rpc::Json;

class FakeDaemon : private rpc::ServerHandler {
 public:
  using Answer = std::function<Result<Json>(const Json& params)>;

  FakeDaemon();
  ~FakeDaemon() override;

  /// REQUIRES: not started. A method without an answer is never answered.
  void On(const std::string& method, Answer answer) { answers_[method] = std::move(answer); }
  void On(const std::string& method, Json result) {
    On(method, [result](const Json&) -> Result<Json> { return result; });
  }
  void On(const std::string& method, Error error) {
    On(method, [error](const Json&) -> Result<Json> { return tl::make_unexpected(error); });
  }
  void Start();

  const std::string& socket() const { return socket_; }
  /// "method params" of all requests so far.
  std::vector<std::string> requests();

 private:
  void OnRequest(rpc::PeerId peer, const rpc::PeerInfo& info, rpc::Request request) override;
  void OnClosed(rpc::PeerId) override {}
  void Serve();

  std::string folder_;
  std::string socket_;
  std::map<std::string, Answer> answers_;
  std::unique_ptr<rpc::Server> server_;
  Fd stop_;
  std::mutex mutex_;  // guards requests_
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace mlnet::ctl
