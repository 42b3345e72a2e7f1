// SPDX-License-Identifier: Apache-2.0
#include "ring/ring_port.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/clock.h"

namespace mlnet::worker {
namespace {

constexpr uint64_t kNsPerMs = 1'000'000;
constexpr uint64_t kAliveNs = 100 * kNsPerMs;        // where the job has no time after which somebody is lost
constexpr uint64_t kAlivesPerLoss = 8;               // as pings
constexpr uint64_t kOpenNs = 5'000 * kNsPerMs;       // for all ranks to be there
constexpr uint64_t kLingerNs = 2'000 * kNsPerMs;

std::string NameOf(int rank, const std::string& host) { return "rank " + std::to_string(rank) + " (host " + host + ")"; }

}  // namespace

Result<uint16_t> RingPort::Open(const RingOrder& order, uint64_t now_ns) {
  if (link_) return link_->port();  // told once more, by an mlnetd that was restarted
  const EngineConfig& config = engine_.config();
  order_ = order;
  opened_ns_ = heard_ns_ = looked_ns_ = now_ns;
  RingHello hello{static_cast<uint32_t>(config.rank), config.job, config.epoch, {}};
  std::memcpy(hello.token, order.token.data(), std::min(order.token.size(), sizeof(hello.token)));
  auto link = RingLink::Listen(order.address, hello, config.ring_key);
  if (!link) return tl::make_unexpected(link.error());
  link_ = std::move(*link);
  member_.Begin(engine_.Suspend(now_ns), *link_);
  return link_->port();
}

void RingPort::Connect(const RingPeers& peers, uint64_t now_ns) {
  if (!link_ || peers_) return;
  peers_ = peers;
  heard_ns_ = now_ns;
  auto ok = link_->Connect(peers.next_address, peers.next_port, static_cast<uint32_t>(peers.previous));
  if (ok) ok = link_->Flush();
  if (!ok) Fail(ok.error());
}

void RingPort::Fail(const Error& error) {
  if (!has_failed_) failure_ = error;
  has_failed_ = true;
}

bool RingPort::Advance(uint64_t now_ns) {
  if (!link_ || has_failed_) return false;
  const auto received = link_->Receive(member_);
  if (!received) Fail(received.error());
  const bool has_any = received && *received;
  if (has_any) heard_ns_ = now_ns;
  FindSilence(now_ns);
  if (now_ns >= next_alive_ns_) GiveSignOfLife(now_ns);
  if (member_.ring() != nullptr && !was_told_) TellOfRing(now_ns);
  Flush();
  return has_any || has_failed_;
}

void RingPort::Flush() {
  if (!link_ || has_failed_) return;
  if (auto ok = link_->Flush(); !ok) Fail(ok.error());
}

void RingPort::GiveSignOfLife(uint64_t now_ns) {
  const uint64_t ping_ns = engine_.config().ping_ns;
  next_alive_ns_ = now_ns + (ping_ns != 0 ? ping_ns : kAliveNs);
  if (!peers_) return;
  link_->Send(RingKind::kAlive, 1, {});
  if (RingRouter* router = member_.router()) router->TellMissing();
}

// A process that ends is named by its daemon, sooner than this; a host that is cut off, or a process that is stopped, here.
void RingPort::FindSilence(uint64_t now_ns) {
  const uint64_t lost_ns = engine_.config().ping_ns * kAlivesPerLoss;
  if (lost_ns != 0 && now_ns - looked_ns_ > lost_ns / 2) heard_ns_ = now_ns;  // this process stood still itself
  looked_ns_ = now_ns;
  if (has_failed_ || !peers_ || member_.HasSaidBye()) return;
  const bool is_up = link_->IsHeard() || link_->HasEnded();
  const uint64_t limit_ns = is_up && member_.ring() != nullptr ? lost_ns : std::max(lost_ns, kOpenNs);
  if (limit_ns == 0 || now_ns < heard_ns_ + limit_ns) return;
  const std::string silent_ms = std::to_string((now_ns - heard_ns_) / kNsPerMs) + " ms";
  const auto awaited = member_.Awaited();
  if (is_up || !awaited) {
    return Fail({ErrorCode::kRankLost, NameOf(peers_->previous, peers_->previous_host) + " has not been heard of in the ring for " + silent_ms,
                 "is the process stopped, the host down or cut off; lost_ms of the job says how long is too long"});
  }
  Fail({ErrorCode::kRankLost,
        NameOf(peers_->previous, peers_->previous_host) + " did not connect within " + silent_ms + " after the job lost its aggregator (" + order_.why + ")",
        "is its host cut off, or does a firewall keep TCP between the hosts of ranks"});
}

void RingPort::TellOfRing(uint64_t now_ns) {
  was_told_ = true;
  std::fprintf(stderr, "mlnet: job %s, rank %d: sums in user space from here on, in a ring of %d ranks, after a pause of %llu ms: %s\n",
               order_.job.c_str(), engine_.config().rank, engine_.config().world_size,
               static_cast<unsigned long long>((now_ns - opened_ns_) / kNsPerMs), order_.why.c_str());
}

void RingPort::Linger() {
  if (!link_ || has_failed_ || !peers_) return;
  MonotonicClock clock;
  const uint64_t end_ns = clock.NowNs() + kLingerNs;
  link_->Send(RingKind::kAlive, 1, {});
  for (;;) {
    Advance(clock.NowNs());
    const RingRouter* router = member_.ring();
    const bool is_awaited = router != nullptr && router->num_expected() > 0 && !link_->HasEnded();
    if (has_failed_ || (!is_awaited && !link_->HasUnsent()) || clock.NowNs() >= end_ns) break;
    pollfd ready{link_->poll_fd(), POLLIN, 0};
    ::poll(&ready, 1, static_cast<int>(kAliveNs / kNsPerMs));
  }
  if (has_failed_) return;
  link_->Send(RingKind::kBye, 1, {});
  Flush();
}

}  // namespace mlnet::worker
