// SPDX-License-Identifier: Apache-2.0
// The rank's connection to its mlnetd: joins, reports, and hears that the job failed. The connection is
// the membership. Used by the joining thread first, then by the engine's thread only.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "config.h"
#include "control_sink.h"
#include "rpc/client.h"
#include "transport/udp_transport.h"

namespace mlnet::worker {

/// What `join` answers.
struct JoinReply {
  EngineConfig config;
  UdpEndpoints endpoints;
  unsigned local_index = 0;
  Fd inbox, wake, ring;
};

/// A push that concerns the engine.
struct PushedPolicy {
  uint64_t rto_min_ns = 0;
  uint64_t rto_max_ns = 0;
};

class ControlLink final : public ControlSink {
 public:
  static Result<std::unique_ptr<ControlLink>> Connect(const std::string& socket_path);

  Result<JoinReply> Join(const JoinOptions& options);
  void Leave();

  void Describe(uint64_t ordinal, uint32_t fingerprint, const std::string& text) override;
  void Abort(const Error& error) override;
  void Report(const CommStats& stats) override;

  /// Takes what the daemon has pushed: the job's failure, if it failed.
  std::optional<Error> TakePushes(std::optional<PushedPolicy>& policy);
  /// -1 once the daemon is gone: the data path goes on without it.
  int poll_fd() const { return is_connected_ ? client_.poll_fd() : -1; }

 private:
  explicit ControlLink(rpc::Client client) : client_(std::move(client)) {}
  void Notify(const std::string& method, const rpc::Json& params);

  rpc::Client client_;
  bool is_connected_ = true;
};

}  // namespace mlnet::worker
