// SPDX-License-Identifier: Apache-2.0
// The rank's connection to its mlnetd: joins, reports, and hears that the job failed. The connection is
// the membership. A daemon that goes away may be restarted: it is looked for until it is back, and told who this is.
// Used by the joining thread first, then by the engine's thread only.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "config.h"
#include "control_sink.h"
#include "ring/ring_order.h"
#include "rpc/client.h"
#include "transport/udp_transport.h"

namespace mlnet::worker {

/// What `join` answers.
struct JoinReply {
  EngineConfig config;
  std::vector<UdpEndpoints> endpoints;  // by tree
  unsigned local_index = 0;
  Fd inbox, wake, ring;
  ShrinkReport shrunk;
};

struct PushedPolicy {
  uint64_t rto_min_ns = 0;
  uint64_t rto_max_ns = 0;
};

/// What the daemon has pushed since the last look.
struct Pushes {
  std::optional<PushedPolicy> policy;
  std::optional<Grant> grant;
  std::optional<bool> is_traced;      // somebody looks at a timeline, or no more
  bool is_asked_to_describe = false;  // some rank called another collective: say which one this rank is at
  std::optional<RingOrder> ring_order;  // the job has lost an aggregator: the ring takes over
  std::optional<RingPeers> ring_peers;  // all ranks are ready for it
  std::optional<Error> failure;       // the job failed
};

class ControlLink final : public ControlSink {
 public:
  static Result<std::unique_ptr<ControlLink>> Connect(const std::string& socket_path);

  Result<JoinReply> Join(const JoinOptions& options, bool is_server);
  /// Of a job that has failed, `options` as for joining: this rank goes on with those who are left. `world_size`: before.
  Result<JoinReply> Shrink(const JoinOptions& options, const ShrinkOptions& shrink, int world_size);
  /// Waits a few seconds for a daemon that is being restarted: who goes without a word is lost.
  void Leave();

  void Describe(uint64_t ordinal, uint32_t fingerprint, const std::string& text) override;
  void TellRingPort(uint16_t port) { Notify("ring_port", {{"port", port}}); }
  void Abort(const Error& error) override;
  void Report(const CommStats& stats) override;
  void Traced(const std::vector<TraceRecord>& records, bool is_last) override;

  Pushes TakePushes();
  /// -1 while the daemon is away: the data path goes on without it.
  int poll_fd() const { return is_connected_ ? client_.poll_fd() : -1; }
  /// TakePushes looks whether it is back.
  bool is_looking() const { return !is_connected_ && !is_over_; }

 private:
  explicit ControlLink(rpc::Client client, std::string path) : client_(std::move(client)), path_(std::move(path)) {}
  Result<JoinReply> TakeAnswer(const JoinOptions& options, bool is_server, rpc::Reply answer);
  void Notify(const std::string& method, const rpc::Json& params);
  void TakePush(const rpc::Json& body, Pushes& pushes);
  void Lose();
  /// True: it is back, and knows this rank again.
  bool Return();

  rpc::Client client_;
  const std::string path_;
  rpc::Json identity_;  // who this is to a daemon that was restarted
  std::vector<Fd> memberships_;  // of the job's multicast group: they last while the daemon is away
  bool is_connected_ = true;
  bool is_over_ = false;       // the job has failed: there is nothing to come back for
  rpc::Json unheard_abort_;    // of a rank that gave up while the daemon was away
  MonotonicClock clock_;
  uint64_t retry_ns_ = 0;      // from one look to the next
  uint64_t next_look_ns_ = 0;
};

}  // namespace mlnet::worker
