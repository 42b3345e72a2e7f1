// SPDX-License-Identifier: Apache-2.0
// Several ranks with a core each and a network that joins their chunks: within a traffic class the n-th chunk of every rank
// is one collective, which finishes some time after the last rank has started it. Time is a number.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <vector>

#include "schedule/core.h"

namespace mlnet::schedule {

class Ranks {
 public:
  Ranks(size_t num_ranks, const CoreOptions& options, uint32_t seed) : random_(seed) {
    for (size_t r = 0; r < num_ranks; ++r) {
      auto rank = std::make_unique<Rank>();
      rank->core = std::make_unique<Core>(options, [this, r](const Chunk& chunk) { Started(r, chunk); });
      ranks_.push_back(std::move(rank));
    }
  }

  size_t size() const { return ranks_.size(); }
  Core& core(size_t rank) { return *ranks_[rank]->core; }
  uint64_t now() const { return now_; }
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  void At(uint64_t time, std::function<void()> event) { events_.emplace(time, std::move(event)); }

  /// What each rank started in a class, as (task, index).
  using InClass = std::vector<std::pair<TaskId, uint32_t>>;
  const InClass& started(size_t rank, size_t traffic_class) const { return ranks_[rank]->started[traffic_class]; }
  /// All that a rank started, in its own order.
  const std::vector<Chunk>& all(size_t rank) const { return ranks_[rank]->all; }
  /// Called with (rank, chunk, whether it was the last of its task).
  std::function<void(size_t, const Chunk&, bool)> on_finish = [](size_t, const Chunk&, bool) {};

  void Run() {
    while (!events_.empty()) {
      const auto event = std::move(events_.begin()->second);
      now_ = events_.begin()->first;
      events_.erase(events_.begin());
      event();
    }
  }

  void ExpectSameOrderInEachClass() const {
    for (size_t c = 0; c < kLevelsMax; ++c) {
      for (size_t r = 1; r < ranks_.size(); ++r) ASSERT_EQ(started(r, c), started(0, c)) << "rank " << r << " class " << c;
    }
  }
  void ExpectAllDone() const {
    for (const auto& rank : ranks_) {
      ASSERT_EQ(rank->core->num_open(), 0u);
      for (size_t level = 0; level < kLevelsMax; ++level) ASSERT_EQ(rank->core->in_flight_bytes(level), 0u);
    }
  }

 private:
  struct Rank {
    std::unique_ptr<Core> core;
    std::array<InClass, kLevelsMax> started;
    std::vector<Chunk> all;
  };
  struct Collective {
    std::vector<Chunk> chunks;  // by arrival
    std::vector<size_t> ranks;
  };

  void Started(size_t rank, const Chunk& chunk) {
    auto& in_class = ranks_[rank]->started[chunk.traffic_class];
    Collective& collective = open_[{chunk.traffic_class, in_class.size()}];
    in_class.emplace_back(chunk.task, chunk.index);
    ranks_[rank]->all.push_back(chunk);
    collective.ranks.push_back(rank);
    collective.chunks.push_back(chunk);
    if (collective.ranks.size() < ranks_.size()) return;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      At(now_ + 1 + chunk.bytes + Below(50), [this, r = collective.ranks[i], c = collective.chunks[i]] {
        on_finish(r, c, core(r).NotifyFinish(c));
      });
    }
    open_.erase({chunk.traffic_class, in_class.size() - 1});
  }

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::map<std::pair<size_t, size_t>, Collective> open_;
  std::multimap<uint64_t, std::function<void()>> events_;
  uint64_t now_ = 0;
  std::mt19937 random_;
};

}  // namespace mlnet::schedule
