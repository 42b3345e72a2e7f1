// SPDX-License-Identifier: Apache-2.0
// A member of a job, rank or server: connection to mlnetd, sockets and inbox, engine, and the thread that runs it.
#pragma once

#include <memory>

#include "control_link.h"
#include "engine.h"
#include "engine_thread.h"
#include "ring/ring_port.h"
#include "transport/udp_transport.h"

namespace mlnet::worker {

/// What ranks and servers must get right alike; not the rank.
Result<void> CheckJoin(const JoinOptions& options);

class Session {
 public:
  /// Blocks until all of the job have joined. A server has no rank: `options.rank` is not looked at.
  static Result<std::unique_ptr<Session>> Join(const JoinOptions& options, bool is_server);
  ~Session() { thread_.Stop(); }

  const EngineConfig& config() const { return engine_.config(); }
  CommStats Stats() const { return engine_.Stats(); }
  /// `spec`: what was made of a call with these options.
  std::shared_ptr<Work> Submit(const Result<CollectiveSpec>& spec, const CallOptions& options);

 private:
  Session(const EngineConfig& config, std::unique_ptr<ControlLink> control, std::unique_ptr<UdpTransport> transport, Fd ring);

  std::unique_ptr<ControlLink> control_;
  std::unique_ptr<UdpTransport> transport_;
  RingMember member_;
  Engine engine_;
  RingPort port_;
  EngineThread thread_;
};

}  // namespace mlnet::worker
