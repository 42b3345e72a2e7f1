// SPDX-License-Identifier: Apache-2.0
// A member of a job, rank or server: connection to mlnetd, sockets and inbox, engine, and the thread that runs it.
#pragma once

#include <memory>
#include <mutex>

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
  ~Session();
  /// Gives what goes on with the ranks that are left. This one has no membership any more then.
  Result<std::unique_ptr<Session>> Shrink(const JoinOptions& options, const ShrinkOptions& shrink);

  const EngineConfig& config() const { return engine_.config(); }
  CommStats Stats() const { return engine_.Stats(); }
  const ShrinkReport& shrunk() const { return shrunk_; }
  /// `spec`: what was made of a call with these options.
  std::shared_ptr<Work> Submit(const Result<CollectiveSpec>& spec, const CallOptions& options);

 private:
  static Result<std::unique_ptr<Session>> Open(JoinReply reply, std::unique_ptr<ControlLink> control);
  Session(JoinReply reply, std::unique_ptr<ControlLink> control, std::unique_ptr<UdpTransport> transport);

  const ShrinkReport shrunk_;
  std::mutex shrink_mutex_;               // one Shrink at a time
  std::unique_ptr<ControlLink> control_;  // null: the next session has it
  std::unique_ptr<UdpTransport> transport_;
  RingMember member_;
  Engine engine_;
  RingPort port_;
  EngineThread thread_;
};

}  // namespace mlnet::worker
