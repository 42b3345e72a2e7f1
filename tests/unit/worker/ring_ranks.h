// SPDX-License-Identifier: Apache-2.0
// A job whose aggregator never answers, and which goes on in a ring: engines and ports of all ranks over TCP on the
// loopback, turned by one thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "ring/ring_port.h"

namespace mlnet::worker {

/// A path on which everything is lost.
class DeadPath final : public Transport {
 public:
  explicit DeadPath(size_t cells) : cells_(cells) {}
  Result<void> Send(size_t, std::span<const std::byte>, size_t) override { return {}; }
  void SetDscp(int) override {}
  const mlnet_cell* Cells() const override { return cells_.data(); }
  bool NextNotice(mlnet_notice&) override { return false; }

 private:
  std::vector<mlnet_cell> cells_;
};

class SilentSink final : public ControlSink {
 public:
  void Describe(uint64_t, uint32_t, const std::string&) override {}
  void Abort(const Error&) override {}
  void Report(const CommStats&) override {}
  void Traced(const std::vector<TraceRecord>&, bool) override {}
};

struct RingRank {
  explicit RingRank(const EngineConfig& config)
      : path(1 << 10), member(config, path), engine(config, member, sink), port(engine, member) {}

  DeadPath path;
  SilentSink sink;
  RingMember member;
  Engine engine;
  RingPort port;
  std::optional<Error> failure;
  bool is_stopped = false;  // takes no turn
};

class RingRanks {
 public:
  static constexpr const char* kToken = "0123456789abcdef0123456789abcdef";

  /// `key`: of a job whose packets have tags.
  explicit RingRanks(int n, uint64_t ping_ns = 0, uint64_t timeout_ns = 20'000'000'000, std::optional<wire::StreamKey> key = {}) {
    for (int r = 0; r < n; ++r) {
      EngineConfig config;
      config.job = 5;
      config.epoch = 2;
      config.rank = r;
      config.world_size = n;
      config.ping_ns = ping_ns;
      config.timeout_ns = timeout_ns;
      config.small_bytes = 0;
      config.ring_key = key;
      if (key) config.trees[0].signer = std::make_shared<wire::Signer>(std::make_shared<mlnet_key>(), wire::MappedAddress{}, wire::MappedAddress{});
      config.trees[0].pools[0] = {true, 5, 0, 0};
      config.trees[0].fixups[0] = {true, 3, 64, 0};
      ranks_.push_back(std::make_unique<RingRank>(config));
    }
  }

  size_t size() const { return ranks_.size(); }
  RingRank& operator[](size_t r) { return *ranks_[r]; }
  uint64_t NowNs() { return clock_.NowNs(); }

  void OpenAll() {
    ports_.clear();
    for (size_t r = 0; r < size(); ++r) {
      const auto port = (*this)[r].port.Open({"demo", "host a1 is gone", "127.0.0.1", kToken}, NowNs());
      ASSERT_TRUE(port) << port.error().ToString();
      ports_.push_back(*port);
    }
  }
  void Connect(size_t r) { ConnectBy(r, ports_[(r + 1) % size()]); }
  /// Not straight, but to `port`.
  void ConnectBy(size_t r, uint16_t port) {
    const size_t next = (r + 1) % size(), previous = (r + size() - 1) % size();
    (*this)[r].port.Connect({static_cast<int>(next), "w" + std::to_string(next), "127.0.0.1", port, static_cast<int>(previous),
                             "w" + std::to_string(previous)}, NowNs());
  }
  uint16_t port(size_t r) const { return ports_[r]; }
  void Start() {
    ASSERT_NO_FATAL_FAILURE(OpenAll());
    for (size_t r = 0; r < size(); ++r) Connect(r);
  }

  /// Turns all until `condition`; false after `timeout_ns`.
  bool RunUntil(const std::function<bool()>& condition, uint64_t timeout_ns = 20'000'000'000) {
    const uint64_t end_ns = NowNs() + timeout_ns;
    while (!condition()) {
      if (NowNs() >= end_ns) return false;
      for (auto& rank : ranks_) {
        if (!rank->is_stopped) Turn(*rank);
      }
    }
    return true;
  }

 private:
  void Turn(RingRank& rank) {
    rank.port.Advance(NowNs());
    rank.engine.RunOnce(NowNs());
    rank.port.Flush();
    if (const auto failure = rank.port.TakeFailure()) {
      rank.failure = *failure;
      rank.engine.Fail(*failure);
    }
  }

  MonotonicClock clock_;
  std::vector<std::unique_ptr<RingRank>> ranks_;
  std::vector<uint16_t> ports_;
};

}  // namespace mlnet::worker
