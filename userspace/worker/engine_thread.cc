// SPDX-License-Identifier: Apache-2.0
#include "engine_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cfenv>

#include "base/errno_error.h"

namespace mlnet::worker {
namespace {

constexpr uint64_t kSpinNs = 20'000;          // polls so long after the last sign of life
constexpr uint64_t kPushCheckNs = 2'000'000;  // looks at mlnetd's socket so often while busy
constexpr uint64_t kLongestSleepNs = 1'000'000'000;
constexpr uint64_t kLookNs = 20'000'000;      // sleeps no longer while mlnetd is away: it may be back

void RelaxCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

EngineThread::EngineThread(Engine& engine, Inbox& inbox, ControlLink& control, RingPort& port, Fd ring)
    : engine_(engine), inbox_(inbox), control_(control), port_(port), ring_(std::move(ring)) {}

EngineThread::~EngineThread() { Stop(); }

Result<void> EngineThread::Start() {
  event_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_) return tl::make_unexpected(ErrnoError("eventfd", errno));
  thread_ = std::thread([this] { Run(); });
  return {};
}

void EngineThread::Notify() {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the submission is visible before we look
  if (!is_asleep_.load(std::memory_order_relaxed)) return;
  ::eventfd_write(event_.get(), 1);
}

void EngineThread::Stop() {
  if (!thread_.joinable()) return;
  is_stopping_.store(true);
  ::eventfd_write(event_.get(), 1);
  thread_.join();
}

void EngineThread::Release() {
  leaves_.store(false);
  Stop();
}

void EngineThread::Run() {
  // A thread inherits its maker's floating-point modes; subnormals must not be flushed here.
  std::fesetenv(FE_DFL_ENV);
  uint64_t spin_until_ns = 0;
  while (!is_stopping_.load(std::memory_order_relaxed)) {
    const uint64_t now_ns = clock_.NowNs();
    if (now_ns >= next_push_check_ns_) TakePushes();
    const Turn turn = RunOnce(now_ns);
    if (turn.has_progress) {
      spin_until_ns = now_ns + kSpinNs;
    } else if (now_ns < spin_until_ns && !engine_.IsIdle()) {
      RelaxCpu();
    } else if (rest_.ShouldNap(engine_.counters().results.Read()) && !engine_.IsIdle()) {
      Nap();
    } else {
      Sleep();
    }
  }
  if (leaves_) port_.Linger();
  engine_.Fail({ErrorCode::kCancelled, "the communicator was closed", {}});
  if (!leaves_) return;
  control_.Report(engine_.Stats());
  control_.Leave();
}

Turn EngineThread::RunOnce(uint64_t now_ns) {
  const bool has_received = port_.Advance(now_ns);
  Turn turn = engine_.RunOnce(now_ns);
  port_.Flush();
  if (const auto failure = port_.TakeFailure()) GiveUp(*failure);
  turn.has_progress |= has_received;
  turn.next_ns = std::min(turn.next_ns, port_.NextEventNs());
  return turn;
}

void EngineThread::GiveUp(const Error& error) {
  control_.Abort(error);
  engine_.Fail(error);
}

void EngineThread::Nap() {
  const timespec nap{0, static_cast<long>(Rest::kNapNs)};
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, nullptr);
}

void EngineThread::Sleep() {
  is_asleep_.store(true, std::memory_order_seq_cst);
  inbox_.SetAsleep();
  const Turn turn = RunOnce(clock_.NowNs());
  if (!turn.has_progress && !is_stopping_.load()) Poll(turn.next_ns);
  inbox_.SetAwake();
  is_asleep_.store(false, std::memory_order_relaxed);
}

void EngineThread::Poll(uint64_t until_ns) {
  const uint64_t now_ns = clock_.NowNs();
  const uint64_t left_ns = std::min(until_ns > now_ns ? until_ns - now_ns : 0, control_.is_looking() ? kLookNs : kLongestSleepNs);
  const timespec timeout{static_cast<time_t>(left_ns / 1'000'000'000),
                         static_cast<long>(left_ns % 1'000'000'000)};
  std::array<pollfd, 4> fds = {pollfd{ring_.get(), POLLIN, 0}, pollfd{event_.get(), POLLIN, 0},
                               pollfd{control_.poll_fd(), POLLIN, 0}, pollfd{port_.poll_fd(), POLLIN, 0}};
  engine_.counters().sleeps.Add();
  if (::ppoll(fds.data(), fds.size(), &timeout, nullptr) <= 0) return;
  if (fds[1].revents != 0) {
    eventfd_t count;
    ::eventfd_read(event_.get(), &count);
  }
  if (fds[2].revents != 0) next_push_check_ns_ = 0;
}

void EngineThread::TakePushes() {
  next_push_check_ns_ = clock_.NowNs() + kPushCheckNs;
  const Pushes pushes = control_.TakePushes();
  if (pushes.policy) engine_.SetRtoBounds(pushes.policy->rto_min_ns, pushes.policy->rto_max_ns);
  if (pushes.grant) engine_.SetGrant(*pushes.grant, clock_.NowNs());
  if (pushes.is_traced) engine_.SetTracing(*pushes.is_traced);
  if (pushes.is_asked_to_describe) engine_.DescribeCurrent();
  TakeRingPushes(pushes);
  if (!pushes.failure) return;
  engine_.Fail(*pushes.failure);
  port_.Stop();
}

void EngineThread::TakeRingPushes(const Pushes& pushes) {
  if (pushes.ring_order) {
    const auto port = port_.Open(*pushes.ring_order, clock_.NowNs());
    if (port) control_.TellRingPort(*port);
    else GiveUp(port.error());
  }
  if (pushes.ring_peers) port_.Connect(*pushes.ring_peers, clock_.NowNs());
}

}  // namespace mlnet::worker
