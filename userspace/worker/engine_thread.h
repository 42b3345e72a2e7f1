// SPDX-License-Identifier: Apache-2.0
// The thread that runs an engine in a training process: polls while busy, then naps or sleeps.
// Why: results cost no system call while packets flow; a waiting rank leaves the core to others early.
// Sleeping without losing a wake-up: announce it (full fence), look once more, then poll. The other
// side, the XDP program or Submit's caller, publishes first and looks for sleepers after that.
#pragma once

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "control_link.h"
#include "engine.h"
#include "rest.h"
#include "ring/ring_port.h"
#include "transport/inbox.h"

namespace mlnet::worker {

class EngineThread {
 public:
  /// All of them outlive the thread. `ring` is the notice ring's descriptor.
  EngineThread(Engine& engine, Inbox& inbox, ControlLink& control, RingPort& port, Fd ring);
  ~EngineThread();

  Result<void> Start();
  /// After Engine::Submit, from any thread.
  void Notify();
  /// Ends the thread; collectives under way are cancelled.
  void Stop();
  /// The same, but this rank stays a member: its connection is free for other use.
  void Release();
  bool is_running() const { return thread_.joinable(); }

 private:
  void Run();
  void Nap();
  void Sleep();
  void Poll(uint64_t until_ns);
  void TakePushes();
  void TakeRingPushes(const Pushes& pushes);
  Turn RunOnce(uint64_t now_ns);
  void GiveUp(const Error& error);

  Engine& engine_;
  Inbox& inbox_;
  ControlLink& control_;
  RingPort& port_;
  Fd ring_;
  Fd event_;
  MonotonicClock clock_;
  Rest rest_;
  uint64_t next_push_check_ns_ = 0;
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> leaves_{true};  // when it stops
  std::atomic<bool> is_asleep_{false};
  std::thread thread_;
};

}  // namespace mlnet::worker
