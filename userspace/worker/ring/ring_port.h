// SPDX-License-Identifier: Apache-2.0
// How a rank gets into the ring and hears that a neighbour is lost: connections, time, and who does what when.
//   mlnetd: ring_open  -> the engine stops, takes what its inbox has, and listens      -> ring_port to mlnetd
//   mlnetd: ring_join  -> connects to the next rank, tells what it holds; when it has heard all, the engine goes on
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine.h"
#include "ring/ring_link.h"
#include "ring/ring_member.h"
#include "ring/ring_order.h"

namespace mlnet::worker {

class RingPort {
 public:
  /// Both outlive it.
  RingPort(Engine& engine, RingMember& member) : engine_(engine), member_(member) {}

  /// Gives the port it listens on.
  Result<uint16_t> Open(const RingOrder& order, uint64_t now_ns);
  void Connect(const RingPeers& peers, uint64_t now_ns);
  /// Takes what has come in. True when anything did.
  bool Advance(uint64_t now_ns);
  void Flush();
  /// Before this rank leaves: what others still wait for is passed on, for a limited time.
  void Linger();

  /// Why there is no going on; once.
  std::optional<Error> TakeFailure() { return std::exchange(failure_, std::nullopt); }
  /// The job has failed: nothing is said or heard any more.
  void Stop() { has_failed_ = true; }
  uint64_t NextEventNs() const { return link_ && !has_failed_ ? next_alive_ns_ : kNever; }
  int poll_fd() const { return link_ && !has_failed_ ? link_->poll_fd() : -1; }

 private:
  void Fail(const Error& error);
  void GiveSignOfLife(uint64_t now_ns);
  void FindSilence(uint64_t now_ns);
  void TellOfRing(uint64_t now_ns);

  Engine& engine_;
  RingMember& member_;
  std::unique_ptr<RingLink> link_;
  std::optional<RingPeers> peers_;
  RingOrder order_;
  std::optional<Error> failure_;
  bool has_failed_ = false;
  bool was_told_ = false;
  uint64_t opened_ns_ = 0;
  uint64_t heard_ns_ = 0;   // last sign of the previous rank
  uint64_t looked_ns_ = 0;
  uint64_t next_alive_ns_ = 0;
};

}  // namespace mlnet::worker
